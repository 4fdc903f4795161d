"""A metadata file that brokers share: sessions end with a death, or with a long pause."""

from __future__ import annotations

import asyncio

from doubles.disk import MemoryDisk
from lakelog.metadata.store.api import Change
from simulator.cluster.shared_file import SharedFile
from simulator.engine.clock import SimulatedClock
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.engine.tasks import SimulatedTasks, StreamRandom

TIMEOUT_S = 3.0


def test_a_paused_process_is_dead_until_it_is_resumed() -> None:
    simulator = Simulator(1)
    loop, stream = simulator.loop, simulator.random_stream("tasks")
    shared = SharedFile(loop, MemoryDisk(SimulatedClock(loop)), TIMEOUT_S)
    tasks, chance = SimulatedTasks(loop, stream), StreamRandom(stream)
    first, second = Process("broker-1"), Process("broker-2")
    changes: list[Change] = []

    async def main() -> None:
        stores = [shared.handle(tasks, chance, process) for process in (first, second)]
        for node_id, store in enumerate(stores, 1):
            await store.open(create=node_id == 1)
            await store.register_broker(node_id, bytes([node_id]) * 16)
        stores[1].watch(changes.append)
        await asyncio.sleep(TIMEOUT_S)
        changes.clear()
        first.pause(loop.time())
        await asyncio.sleep(TIMEOUT_S / 2)
        assert sorted(await stores[1].live_brokers()) == [1, 2]
        await asyncio.sleep(TIMEOUT_S)
        assert sorted(await stores[1].live_brokers()) == [2]
        assert changes == [Change.BROKERS]
        loop.resume(first)
        assert sorted(await stores[1].live_brokers()) == [1, 2]
        for store in stores:
            await store.close()

    loop.run_until_complete(asyncio.wait_for(main(), 300))
    loop.close()
