"""The metadata of a broker that is a cluster by itself."""

from __future__ import annotations

from simulator import Plan, World


def test_a_broker_alone_keeps_its_metadata_in_its_data_folder() -> None:
    world = World(1, Plan())
    (host,) = world.brokers.hosts
    world.simulator.loop.run_until_complete(host.start())
    assert host.disk.exists(host._options().data / "metadata.db")
    assert not host._options().is_clustered
    host.kill()
    world.simulator.loop.close()
