"""A transaction coordinator in virtual time, over a faulty log and modelled partitions.

`PartitionModel` is a simple model of a partition with records and markers. The tests compare what
its readers see with the responses of producers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from doubles.randomness import SeededRandom
from group_setup import FakeLog, FakeTopics
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.coordinator.group.config import GroupConfig
from lakelog.coordinator.group.coordinator import GROUP_TOPIC, GroupCoordinator
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC, TransactionCoordinator
from lakelog.coordinator.transaction.endings import Marker
from lakelog.coordinator.transaction.ids import TransactionConfig
from lakelog.coordinator.transaction.producers import ProducerReply
from lakelog.coordinator.transaction.records import TransactionRecord, encode_record
from lakelog.coordinator.transaction.requests import LastSequences, WrittenTo
from lakelog.coordinator.transaction.state import TopicPartition, Transaction, TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.transactions import EndTxnRequest, InitProducerIdRequest
from lakelog.records.builder import BatchBuilder
from lakelog.runtime.aio import AsyncioTasks
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from virtual_time import run_in_virtual_time
from waiting import until

T = TypeVar("T")

CLASSIC, BUMPING = TransactionVersion.CLASSIC, TransactionVersion.BUMPING
TIMEOUT_MS = 60_000
_VIRTUAL_S_MAX = 3600.0


@dataclass
class PartitionModel:
    """One partition: records in order, each open, committed or aborted."""

    records: list[tuple[Producer, str]] = field(default_factory=list)
    fates: list[bool | None] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    def needs_verification(self, producer: Producer) -> bool:
        """Return whether no transaction of this epoch is open; older epochs are other
        transactions."""
        open_ = self.open_of(producer.producer_id)
        return not any(self.records[index][0] == producer for index in open_)

    def open_of(self, producer_id: int) -> list[int]:
        return [
            index
            for index, (producer, _) in enumerate(self.records)
            if producer.producer_id == producer_id and self.fates[index] is None
        ]

    def append(self, producer: Producer, value: str) -> None:
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        self.epochs[producer.producer_id] = producer.epoch
        self.records.append((producer, value))
        self.fates.append(None)

    def mark(self, marker: Marker) -> None:
        """Write a marker.

        Raises `KafkaError` for an older epoch or an older coordinator, and with KIP-890 for the
        current epoch of an open transaction: its end has a newer epoch.
        """
        producer_id = marker.producer_id
        known = self.epochs.get(producer_id, -1)
        is_bumping = marker.transaction_version is TransactionVersion.BUMPING
        is_late = is_bumping and marker.producer_epoch == known and self.open_of(producer_id)
        if marker.producer_epoch < known or is_late:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if marker.coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        self.epochs[producer_id] = marker.producer_epoch
        self.coordinator_epochs[producer_id] = marker.coordinator_epoch
        for index in self.open_of(marker.producer_id):
            self.fates[index] = marker.commit

    @property
    def visible(self) -> list[str]:
        """Return the records that `read_committed` returns when no transaction is open."""
        return [value for (_, value), fate in zip(self.records, self.fates, strict=True) if fate]

    @property
    def is_stable(self) -> bool:
        return None not in self.fates


class FakeMarkers:
    """Partitions behind a network.

    Attributes:
        delay_s: returns the duration of each write.
        fate: returns the outcome of each marker: `ok`, `lost` (not written) or `kept` (written).
            The coordinator sees an unknown outcome for the last two.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.partitions: dict[TopicPartition, PartitionModel] = {}
        self.written: list[Marker] = []
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.fate: Callable[[], str] = lambda: "ok"
        self.gone: set[TopicPartition] = set()

    def partition(self, topic: str, index: int) -> PartitionModel:
        return self.partitions.setdefault((topic, index), PartitionModel())

    async def write(self, markers: Sequence[Marker]) -> list[ErrorCode]:
        return [await self._write(marker) for marker in markers]

    async def _write(self, marker: Marker) -> ErrorCode:
        await asyncio.sleep(self.delay_s())
        fate = self.fate()
        if (marker.topic, marker.partition) in self.gone:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if fate == "lost":
            return ErrorCode.REQUEST_TIMED_OUT
        code = await self._apply(marker)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if fate == "kept" else code

    async def _apply(self, marker: Marker) -> ErrorCode:
        self.written.append(marker)
        try:
            self.partition(marker.topic, marker.partition).mark(marker)
        except KafkaError as error:
            return error.code
        if marker.topic != GROUP_TOPIC:
            return ErrorCode.NONE
        end = TransactionMarker(*marker[2:])
        code: ErrorCode = await self._setup.groups.write_marker(marker.partition, end)
        return code


class FakeProducerLogs:
    """The producers of the partitions of `FakeMarkers`.

    Attributes:
        delay_s: duration of each answer; without one it comes at once.
        fails: whether the leaders do not answer.
    """

    def __init__(self, markers: FakeMarkers) -> None:
        self._markers = markers
        self.delay_s = 0.0
        self.fails = False

    async def last_sequences(self, targets: Sequence[WrittenTo]) -> LastSequences:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.fails:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return {target: self._last(target) for target in targets}

    def _last(self, written_to: WrittenTo) -> int:
        model = self._markers.partition(written_to.topic, written_to.partition)
        written = [model.records[index][0] for index in model.open_of(written_to.producer_id)]
        return written.count(Producer(written_to.producer_id, written_to.producer_epoch)) - 1


class Setup:
    """A broker's coordinators; `restart` creates others over the same logs."""

    def __init__(self, loop: SimulatedLoop, config: TransactionConfig, seed: int = 0) -> None:
        self.loop = loop
        self.config = config
        self.clock = SimulatedClock(loop)
        self.tasks = AsyncioTasks(loop)
        self.random = SeededRandom(seed)
        self.log = FakeLog()
        self.group_log = FakeLog()
        self.topics = FakeTopics({"orders": (b"o" * 16, 8), "clicks": (b"c" * 16, 2)})
        self.markers = FakeMarkers(self)
        self.producer_logs = FakeProducerLogs(self.markers)
        self.producer_ids = 0
        self.gives_producer_ids = True
        self.epoch = 0
        self.forgotten_epochs_end = 0
        self.memory = Share()
        self.coordinator = self.new_coordinator()
        self.groups = self.new_groups()

    def new_coordinator(self) -> TransactionCoordinator:
        self.epoch += 1
        return TransactionCoordinator(
            self.config,
            self.clock,
            self.tasks,
            self.log,
            self.topics,
            self.markers,
            self.producer_logs,
            new_producer_id=self.next_producer_id,
            forgotten_epochs_end=lambda: self.forgotten_epochs_end,
            memory=self.memory,
        )

    def new_groups(self) -> GroupCoordinator:
        config = GroupConfig(partitions=1, initial_rebalance_delay_ms=0)
        return GroupCoordinator(
            config,
            self.clock,
            self.tasks,
            self.random,
            self.group_log,
            self.topics,
            memory=self.memory,
        )

    async def next_producer_id(self) -> int:
        await asyncio.sleep(0)
        if not self.gives_producer_ids:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        self.producer_ids += 1
        return 999 + self.producer_ids

    async def start(self) -> None:
        await self.groups.load_partition(0, 0)
        for partition in range(self.config.partitions):
            await self.coordinator.load_partition(partition, self.epoch)

    def lose_power(self) -> None:
        """Note that the log may have lost its end."""
        self.forgotten_epochs_end = 1000 + self.producer_ids

    def check_count(self) -> None:
        """Compare the shared count with a sum over all shards."""
        shards = self.coordinator._host.active_shards()
        assert self.coordinator.id_count == sum(len(each.transactions) for each in shards)

    async def restart(self) -> None:
        self.check_count()
        self.coordinator.close()
        self.groups.close()
        await self.log.idle.wait()
        await self.group_log.idle.wait()
        self.coordinator, self.groups = self.new_coordinator(), self.new_groups()
        await self.start()

    # Requests of producers

    async def init(
        self,
        transactional_id: str = "t",
        expected: Producer | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerReply:
        held = expected or Producer(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=held.producer_id,
            producer_epoch=held.epoch,
        )
        answer: ProducerReply = await self.coordinator.init_producer_id(request)
        return answer

    async def ready(self, transactional_id: str = "t", **settings: Any) -> Producer:
        """Send InitProducerId, and retry retriable errors as a client does."""

        async def done() -> Producer | None:
            answer = await self.init(transactional_id, **settings)
            if answer.code is ErrorCode.NONE:
                return Producer(answer.producer_id, answer.producer_epoch)
            assert answer.code.retriable, answer
            return None

        return await until(done, _VIRTUAL_S_MAX, "a producer id", every_s=0.05)

    async def with_epoch(self, epoch: int) -> Producer:
        """Return a producer with this epoch, as after 32,000 transactions."""
        first = await self.ready()
        transaction = Transaction(
            producer_id=first.producer_id,
            producer_epoch=epoch,
            timeout_ms=60_000,
            last_update_ms=self.clock.wall_ms(),
            previous_producer_id=first.producer_id,
        )
        builder = BatchBuilder()
        builder.append(0, *encode_record(TransactionRecord("t", transaction)))
        await self.log.append(0, builder.build())
        await self.restart()
        return Producer(first.producer_id, epoch)

    async def add(
        self,
        producer: Producer,
        *partitions: TopicPartition,
        transactional_id: str = "t",
        version: TransactionVersion = CLASSIC,
    ) -> ErrorCode:
        code: ErrorCode = await self.coordinator.add_partitions(
            transactional_id, producer, partitions or [("orders", 0)], version
        )
        return code

    async def end(
        self,
        producer: Producer,
        *,
        commit: bool,
        transactional_id: str = "t",
        version: TransactionVersion = CLASSIC,
    ) -> ProducerReply:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        spoken = 5 if version is BUMPING else 3
        answer = await self.coordinator.end_txn(request, spoken)
        return ProducerReply(
            ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch
        )

    def state(self, transactional_id: str = "t") -> str:
        return self.coordinator.admin.describe(transactional_id).transaction_state

    def identity(self, transactional_id: str = "t") -> Producer:
        described = self.coordinator.admin.describe(transactional_id)
        return Producer(described.producer_id, described.producer_epoch)

    async def settled(self, transactional_id: str = "t") -> str:
        """Wait for the end of the transaction; return the state."""
        await until(
            lambda: self.state(transactional_id) in ("CompleteCommit", "CompleteAbort", "Empty"),
            _VIRTUAL_S_MAX,
            lambda: f"the end of a transaction, which is {self.state(transactional_id)}",
            every_s=0.05,
        )
        return self.state(transactional_id)


def run(
    scenario: Callable[[Setup], Coroutine[Any, Any, T]],
    config: TransactionConfig | None = None,
    seed: int = 0,
) -> T:
    """Run a scenario in virtual time, with all partitions loaded; return its result."""

    async def work(loop: SimulatedLoop) -> T:
        setup = Setup(loop, config or TransactionConfig(partitions=1), seed)
        await setup.start()
        try:
            result = await scenario(setup)
            setup.check_count()
            return result
        finally:
            setup.coordinator.close()
            setup.check_count()
            setup.groups.close()
            await asyncio.sleep(5)

    return run_in_virtual_time(work)


def in_virtual_time(
    **settings: Any,
) -> Callable[[Callable[[Setup], Coroutine[Any, Any, None]]], Any]:
    """Turn a scenario into a test; `settings` are fields of `TransactionConfig`."""
    values: dict[str, Any] = {"partitions": 1, **settings}

    def wrap(
        scenario: Callable[[Setup], Coroutine[Any, Any, None]],
    ) -> Callable[[], None]:
        def test() -> None:
            run(scenario, TransactionConfig(**values))

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        return test

    return wrap


__all__ = [
    "BUMPING",
    "CLASSIC",
    "TRANSACTION_TOPIC",
    "Producer",
    "Setup",
    "in_virtual_time",
    "run",
]
