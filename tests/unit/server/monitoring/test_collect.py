from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode
from lakelog.metadata.controller.leadership import plan_failed_replicas
from lakelog.metadata.failover import Failure
from lakelog.runtime.api import ProcessUsage
from lakelog.server.monitoring.collect import overview
from lakelog.server.monitoring.families import ELECTION_COUNT
from lakelog.server.monitoring.pages import compat
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.sources import Sources
from memory_broker import MemoryBroker
from replica_pair import FOLLOWER, LEADER, ReplicaPair


@pytest.fixture
def sources(world: MemoryBroker) -> Sources:
    return world._server.monitoring._sources


def lines(sources: Sources, checks: Iterable[Check] = ()) -> dict[str, float]:
    """Return the number of each sample, by its name and labels."""
    samples = [line for line in overview(sources, checks) if not line.startswith("#")]
    found = {name: float(number) for name, _, number in (line.rpartition(" ") for line in samples)}
    assert len(found) == len(samples), "Prometheus rejects a page that repeats a sample"
    return found


def test_traffic_is_summed_over_the_partitions_of_a_topic(
    world: MemoryBroker, sources: Sources
) -> None:
    world.create("orders", 2)
    world.create("empty")
    for index in range(2):
        world.append("orders", index, count=3)
    found = lines(sources)
    assert found['lakelog_records_total{topic="orders",op="produce"}'] == 6
    assert found['lakelog_records_total{topic="empty",op="produce"}'] == 0
    size = sum(world.partition("orders", index).log.size for index in range(2))
    assert found['lakelog_log_size_bytes{topic="orders"}'] == size > 0
    assert found['lakelog_produce_bytes_total{topic="orders"}'] == size
    assert (found["lakelog_topics"], found["lakelog_partitions"]) == (2, 3)


def test_one_failing_check_is_enough_for_not_ready(sources: Sources) -> None:
    passing, failing = Check("metadata", ""), Check("accepting", "not yet")
    assert lines(sources, [passing])["lakelog_ready"] == 1
    assert lines(sources, [passing, failing])["lakelog_ready"] == 0


def test_errors_are_named_as_in_kafka_s_documentation(
    world: MemoryBroker, sources: Sources
) -> None:
    world.broker.requests.errors["Fetch", ErrorCode.OFFSET_OUT_OF_RANGE] += 2
    name = 'lakelog_request_errors_total{api="Fetch",code="OFFSET_OUT_OF_RANGE"}'
    assert lines(sources)[name] == 2


def test_names_that_clients_choose_make_a_bounded_number_of_series(
    world: MemoryBroker, sources: Sources
) -> None:
    """Each label is a time series in Prometheus."""
    connections = [world._connect()[0] for _ in range(30)]
    for number, connection in enumerate(connections):
        connection.session.client_software = "common" if number < 3 else f"client-{number}"
    connections[-1].session.client_software = ""
    known = world._server._dispatcher.connections
    for connection in connections:
        known.add(connection)
    shown = {
        name: number
        for name, number in lines(sources).items()
        if name.startswith("lakelog_connections{")
    }
    assert shown['lakelog_connections{client_software="common"}'] == 3
    assert sum(shown.values()) == 30, "the rest is counted together"
    assert len(shown) == 21


def test_a_replica_that_is_not_in_sync_is_counted(world: MemoryBroker, sources: Sources) -> None:
    world.create("orders")
    assert lines(sources)["lakelog_under_replicated_partitions"] == 0
    world.change_leader("orders", 1, (1, 2))
    world.change_leader("orders", 1, (1,))
    assert lines(sources)["lakelog_under_replicated_partitions"] == 1


def test_a_shortage_is_shown_by_its_resource(world: MemoryBroker, sources: Sources) -> None:
    world.broker.shortages.note(OSError(errno.ENOSPC, "no space left"))
    found = lines(sources)
    assert found['lakelog_shortage{resource="disk"}'] == 1
    assert found['lakelog_shortage{resource="descriptors"}'] == 0


def test_a_process_that_cannot_be_measured_costs_its_lines_only(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors `/proc` cannot be read, and then an operator needs the other metrics."""
    measured = ProcessUsage(1.5, 100, 200, 7, 64, 1e9)
    monkeypatch.setattr(sources.processes, "usage", lambda: measured)
    assert lines(sources)["process_open_fds"] == 7

    def usage() -> ProcessUsage:
        raise OSError("too many open files")

    monkeypatch.setattr(sources.processes, "usage", usage)
    found = lines(sources)
    assert not [name for name in found if name.startswith("process_")]
    assert "lakelog_topics" in found


def test_the_cleaner_has_lines_once_it_runs(sources: Sources) -> None:
    assert lines(sources)["lakelog_cleaner_rounds_total"] == 0
    sources.cleaner = None
    assert "lakelog_cleaner_rounds_total" not in lines(sources)


def test_operators_see_the_replicas_of_a_cluster(world: MemoryBroker, sources: Sources) -> None:
    pair = ReplicaPair(world)

    def numbers(*names: str) -> list[float]:
        found = lines(sources)
        return [found[f"lakelog_{name}"] for name in names]

    states = (
        "under_replicated_partitions",
        "under_min_isr_partitions",
        "leaderless_partitions",
        "isr_shrinks_total",
    )
    assert numbers(*states, "replica_lag_records_max") == [0, 0, 0, 0, 0]
    brokers = ("active_controller", "registered_brokers", "fenced_brokers")
    assert numbers(*brokers) == [1, 2, 0]
    pair.produce(acks=1)
    assert numbers("replica_lag_records_max") == [2]
    pair.fence()
    pair.leader.use_config(LogConfig(min_insync_replicas=2))
    assert numbers(*states) == [1, 1, 0, 1]
    assert numbers(*brokers) == [1, 2, 1]
    key = pair.leader.key
    pair.change((FOLLOWER,), leader=-1, epoch_rises=True)
    assert numbers("under_replicated_partitions", "leaderless_partitions") == [0, 1]
    assert numbers("offline_replicas") == [0]
    failed = {key: Failure(0, is_offline=True)}
    epoch = world.broker.image.broker_epoch(LEADER)
    world.run(
        world.broker.metadata.submit(
            lambda image: plan_failed_replicas(image, LEADER, epoch, failed)
        )
    )
    assert numbers("offline_replicas") == [1]


def test_kafka_s_names_have_the_same_numbers(world: MemoryBroker, sources: Sources) -> None:
    ReplicaPair(world).fence()
    found = dict(line.rsplit(" ", 1) for line in compat(sources) if not line.startswith("#"))
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == "1"
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == "1"
    assert found["kafka_controller_kafkacontroller_fencedbrokercount"] == "1"
    assert found["kafka_brokers"] == "1", "the fenced one does not count"
    assert found["kafka_server_replicamanager_partitioncount"] == str(len(world.broker.partitions))
    world.broker.controller.elections.note(0.5)
    assert dict(line.rsplit(" ", 1) for line in compat(sources))[ELECTION_COUNT] == "1"
