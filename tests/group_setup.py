"""A group coordinator in virtual time, over a log that is slow, and rejects or loses appends."""

from __future__ import annotations

import asyncio
import bisect
import struct
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from doubles.randomness import SeededRandom
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.coordinator import GroupCoordinator
from lakelog.coordinator.shard import TransactionMarker
from lakelog.records.batch import patch_offset_and_epoch, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.aio import AsyncioTasks
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from virtual_time import run_in_virtual_time

T = TypeVar("T")


class FakePartitionLog:
    """One partition of a `FakeLog`, opened in a leader epoch."""

    def __init__(self, logs: FakeLog, partition: int, leader_epoch: int) -> None:
        self._logs = logs
        self._partition = partition
        self._leader_epoch = leader_epoch

    def _check(self) -> None:
        self._logs.check_epoch(self._partition, self._leader_epoch)

    async def append(self, batch: bytearray) -> int:
        self._check()
        base_offset = await self._logs.append(self._partition, batch)
        self._check()
        return base_offset

    async def append_marker(self, marker: TransactionMarker) -> int:
        self._check()
        base_offset = await self._logs.append_marker(self._partition, marker)
        self._check()
        return base_offset

    async def start_offset(self) -> int:
        self._check()
        return await self._logs.start_offset(self._partition)

    async def read(self, offset: int) -> bytes:
        self._check()
        return await self._logs.read(self._partition, offset)


class FakeLog:
    """Partitions in memory.

    Attributes:
        leader_epochs: the current leader epoch of partitions that have changed it.
        leading: the partitions that the broker leads, as `led` returns them.
        has_lease: what `is_current` returns.
        delay_s: returns the duration of each append.
        fate: returns the outcome of each append: `ok`, `refused` (not done), `lost` (not done) or
            `kept` (done). The caller sees an unknown outcome for the last two.
    """

    def __init__(self) -> None:
        self.leader_epochs: dict[int, int] = {}
        self.leading: list[int] = []
        self.has_lease = True
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self._last_offsets: dict[int, list[int]] = {}
        self.appends = 0
        self.in_flight: set[int] = set()
        self.idle = asyncio.Event()
        self.idle.set()
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.fate: Callable[[], str] = lambda: "ok"
        self.read_barrier: asyncio.Event | None = None

    def open(self, partition: int, leader_epoch: int) -> FakePartitionLog:
        self.check_epoch(partition, leader_epoch)
        return FakePartitionLog(self, partition, leader_epoch)

    def led(self) -> list[int]:
        return self.leading

    def is_current(self) -> bool:
        return self.has_lease

    def check_epoch(self, partition: int, leader_epoch: int) -> None:
        if self.leader_epochs.get(partition, leader_epoch) != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def append_marker(self, partition: int, marker: TransactionMarker) -> int:
        builder = BatchBuilder()
        builder.append(0, struct.pack(">hh", 0, marker.commit), struct.pack(">hi", 0, 0))
        producer = (marker.producer_id, marker.producer_epoch)
        batch = builder.build(*producer, is_transactional=True, is_control=True)
        return await self.append(partition, batch)

    async def append(self, partition: int, batch: bytearray) -> int:
        assert partition not in self.in_flight, "two appends to one partition at once"
        self.in_flight.add(partition)
        self.idle.clear()
        try:
            self.appends += 1
            await asyncio.sleep(self.delay_s())
            fate = self.fate()
            if fate == "refused":
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            if fate == "lost":
                raise OSError("an append was lost")
            base_offset = self._store(partition, batch)
            if fate == "kept":
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            return base_offset
        finally:
            self.in_flight.discard(partition)
            if not self.in_flight:
                self.idle.set()

    def _store(self, partition: int, batch: bytearray) -> int:
        base_offset = self.ends.get(partition, 0)
        patch_offset_and_epoch(batch, 0, base_offset, 7)
        self.batches.setdefault(partition, []).append(bytes(batch))
        last_offset = read_header(batch).last_offset
        self._last_offsets.setdefault(partition, []).append(last_offset)
        self.ends[partition] = last_offset + 1
        return base_offset

    async def start_offset(self, partition: int) -> int:
        return 0

    async def read(self, partition: int, offset: int) -> bytes:
        if self.read_barrier is not None:
            await self.read_barrier.wait()
        batches = self.batches.get(partition, [])
        found = bisect.bisect_left(
            batches, offset, key=lambda batch: read_header(batch).last_offset
        )
        return batches[found] if found < len(batches) else b""


def _last_offset(batch: bytes) -> int:
    return read_header(batch).last_offset


class FakeTopics:
    def __init__(self, topics: dict[str, tuple[bytes, int]]) -> None:
        self.topics = topics
        self.changes = 0

    def topic_id(self, name: str) -> bytes | None:
        return self.topics[name][0] if name in self.topics else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, (each, _) in self.topics.items() if each == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self.topics[name][1] if name in self.topics else 0

    def names(self) -> list[str]:
        return list(self.topics)

    def version(self) -> int:
        return self.changes


class Setup:
    """A broker's group coordinator; `restart` creates another over the same log."""

    def __init__(self, loop: SimulatedLoop, config: GroupConfig, seed: int = 0) -> None:
        self.loop = loop
        self.config = config
        self.clock = SimulatedClock(loop)
        self.tasks = AsyncioTasks(loop)
        self.random = SeededRandom(seed)
        self.log = FakeLog()
        self.topics = FakeTopics({"orders": (b"o" * 16, 8), "clicks": (b"c" * 16, 2)})
        self.memory = Share()
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.config,
            self.clock,
            self.tasks,
            self.random,
            self.log,
            self.topics,
            memory=self.memory,
        )

    async def start(self) -> None:
        for partition in range(self.config.partitions):
            await self.coordinator.load_partition(partition, 0)

    @property
    def group_ids(self) -> list[str]:
        """Ids of the groups in the loaded partitions."""
        return [group.group_id for group in self.coordinator.admin.progress()]

    def check_counts(self) -> None:
        """Compare the shared counts with a sum over all groups."""
        groups = offset_groups = 0
        for shard in self.coordinator._host.active_shards():
            state = shard.state
            live = {*state.classic, *state.consumers.by_id}
            groups += len(live) - state.pending.unjoined_count
            groups -= len(live.intersection(state.evicting))
            offset_groups += len(state.offsets) - len(state.evicting)
        limits = self.coordinator._limits
        assert (limits.groups.total, limits.offset_groups.total) == (groups, offset_groups)

    async def restart(self) -> None:
        self.check_counts()
        self.coordinator.close()
        await self.log.idle.wait()
        self.coordinator = self.new_coordinator()
        await self.start()


def run(
    scenario: Callable[[Setup], Coroutine[Any, Any, T]],
    config: GroupConfig | None = None,
    seed: int = 0,
) -> T:
    """Run a scenario in virtual time, with all partitions loaded; return its result."""

    async def work(loop: SimulatedLoop) -> T:
        setup = Setup(loop, config or GroupConfig(partitions=1, initial_rebalance_delay_ms=0), seed)
        await setup.start()
        try:
            result = await scenario(setup)
            setup.check_counts()
            return result
        finally:
            setup.coordinator.close()
            setup.check_counts()
            await asyncio.sleep(1)

    return run_in_virtual_time(work)


def in_virtual_time(
    **settings: Any,
) -> Callable[[Callable[[Setup], Coroutine[Any, Any, None]]], Any]:
    """Turn a scenario into a test; `settings` are fields of `GroupConfig`."""
    values: dict[str, Any] = {"partitions": 1, "initial_rebalance_delay_ms": 0, **settings}

    def wrap(scenario: Callable[[Setup], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def test() -> None:
            run(scenario, GroupConfig(**values))

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        return test

    return wrap
