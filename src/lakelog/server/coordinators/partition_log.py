"""Gives a coordinator access to the partitions of its topic that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, LastSequences, WrittenTo
from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from lakelog.replica.partition import Partition
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.replica.purgatory import Purgatory
from lakelog.replica.role import NotLeaderError
from lakelog.runtime.api import Clock, Tasks
from lakelog.server.appends.acknowledgement import Appended, committed
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.upkeep.stored_checks import StoredChecks
from lakelog.storage.preparation import NotReady

_READ_BYTES_MAX = 1 << 20

T = TypeVar("T")


class _Loadable(NamedTuple):
    """The log of a new leader, until all of it is committed, or too few replicas are in sync.

    The leader was elected with every committed record. With too few replicas in sync, its log may
    end with others, and nothing more is committed. Offsets of groups in such records were not
    acknowledged: a consumer that fetches one may find an older one after another election, as if
    the commit had been lost on its way. Without them, it could fetch no offset as long as a
    replica is away.
    """

    appended: Appended

    @property
    def partition(self) -> Partition:
        return self.appended.partition

    @property
    def commit_offset(self) -> None:
        """Not the high watermark alone decides it."""
        return

    @property
    def is_complete(self) -> bool:
        return self.appended.is_complete or self.partition.watermark.is_short

    def check(self) -> None:
        """Raise as `Appended.check`, unless too few replicas are in sync."""
        is_ended = self.partition.leader_epoch != self.appended.leader_epoch
        if is_ended or not (self.partition.serves and self.partition.watermark.is_short):
            self.appended.check()


class LocalPartitionLogs:
    """The partitions of one topic."""

    def __init__(
        self,
        topic: str,
        timeout_s: float,
        partitions: PartitionRegistry,
        purgatory: Purgatory,
        clock: Clock,
        tasks: Tasks,
        checks: StoredChecks,
        *,
        is_current: Callable[[], bool],
    ) -> None:
        """
        timeout_s: time for the replication of one append.
        is_current: see `PartitionLogs`.
        """
        self.is_current = is_current
        self.topic = topic
        self.timeout_s = timeout_s
        self.purgatory = purgatory
        self.clock = clock
        self.tasks = tasks
        self.checks = checks
        self._partitions = partitions

    def open(self, partition: int, leader_epoch: int) -> LocalPartitionLog:
        """Return the log of a partition.

        Raises `KafkaError` as `PartitionRegistry.leader`, `NotLeaderError` in another leader epoch
        too.
        """
        log = LocalPartitionLog(self, self._partitions.leader(self.topic, partition), leader_epoch)
        log.check()
        return log

    def led(self) -> list[int]:
        """Return the partitions that this broker leads now."""
        return [
            partition.index
            for partition in self._partitions
            if partition.topic == self.topic and partition.serves
        ]


class LocalPartitionLog:
    """One partition in one leader epoch. An append returns when it is committed.

    An append is made only if `min.insync.replicas` are in sync, and raises REQUEST_TIMED_OUT if
    they do not have it in time.

    A topic that was deleted and created again has other partitions, so a log never writes to the
    new topic.
    """

    def __init__(self, logs: LocalPartitionLogs, replica: Partition, leader_epoch: int) -> None:
        # Whether `start_offset` waits for no commit while too few replicas are in sync. A
        # transaction coordinator must wait: it carries out the decisions in its log.
        self._loads_uncommitted = logs.topic == GROUP_TOPIC
        self._loaded_end = 0
        """The end of the log that a load begins with, exclusive; read up to here at least."""
        self._logs = logs
        self._replica = replica
        self._leader_epoch = leader_epoch

    def check(self) -> None:
        """Raise `KafkaError` unless this broker leads the partition in the log's leader epoch."""
        replica = self._replica
        if not replica.serves:
            replica.check_leader()
        if replica.leader_epoch != self._leader_epoch:
            raise NotLeaderError(replica.role.leader_id, replica.leader_epoch)

    async def append(self, batch: bytearray) -> int:
        def append(replica: Partition) -> tuple[int, int]:
            now_ms = self._logs.clock.wall_ms()
            result = replica.append(batch, now_ms, origin="coordinator", acks_all=True)
            return result.base_offset, result.last_offset

        return await self._commit(append)

    async def append_marker(self, marker: TransactionMarker) -> int:
        def append(replica: Partition) -> tuple[int, int]:
            offset = replica.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.commit,
                marker.coordinator_epoch,
                self._logs.clock.wall_ms(),
                transaction_version=marker.transaction_version,
                decision=marker.decision,
            )
            return offset, offset

        return await self._commit(append)

    async def _commit(self, append: Callable[[Partition], tuple[int, int]]) -> int:
        """Append, wait until that is committed, and return the base offset.

        append: returns the base offset and the last offset.
        """
        # No `await` lies between the append and the check of the watermark below, so the epoch is
        # the same.
        base, last = await self._ready(append)
        replica = self._replica
        if replica.watermark.offset <= last:
            appended = Appended(replica, last + 1, self._leader_epoch)
            deadline = self._logs.clock.monotonic() + self._logs.timeout_s
            await committed(appended, self._logs.purgatory, self._logs.tasks, deadline)
        return base

    async def start_offset(self) -> int:
        self.check()
        # The log end of the election, which the high watermark of a new leader has yet to reach. A
        # shard that was loaded to the watermark only could miss decisions that the former
        # coordinator has answered.
        appended = Appended(self._replica, self._replica.log.log_end_offset, self._leader_epoch)
        loadable = _Loadable(appended) if self._loads_uncommitted else appended
        await committed(loadable, self._logs.purgatory, self._logs.tasks)
        self._loaded_end = appended.end_offset
        return self._replica.log.log_start_offset

    async def read(self, offset: int) -> bytes:
        records = await self._ready(
            lambda replica: replica.read(
                offset,
                _READ_BYTES_MAX,
                min_one=True,
                end=max(replica.watermark.offset, self._loaded_end),
            )
        )
        if records is None:
            return b""
        try:
            return records.read()
        finally:
            records.release()

    async def _ready(self, use: Callable[[Partition], T]) -> T:
        """Return the result of `use` once it no longer raises `NotReady`."""
        while True:
            self.check()
            try:
                return use(self._replica)
            except NotReady as first:
                job = first.job
            await self._logs.checks.run_one(self._replica, job)


class ClusterProducerLogs:
    """The leaders of all partitions; a `ProducerLogs`.

    Only this broker's own metadata image states that a topic is deleted, as for markers.
    """

    def __init__(
        self, leaders: PartitionLeaders, partitions: PartitionRegistry, tasks: Tasks
    ) -> None:
        self._leaders = leaders
        self._partitions = partitions
        self._tasks = tasks

    async def last_sequences(self, targets: Sequence[WrittenTo]) -> LastSequences:
        """Return the last sequence of each open transaction; raises as `ProducerLogs`."""
        sequences = dict.fromkeys(targets, NO_SEQUENCE)
        by_leader: dict[int, list[WrittenTo]] = {}
        for target in sequences:
            if (leader := self._leaders.of(target.topic, target.partition)) is not None:
                by_leader.setdefault(leader, []).append(target)
        own = by_leader.pop(self._leaders.node_id, [])
        sequences.update((target, self._own(target)) for target in own)
        asked = [
            self._tasks.spawn(self._ask(leader, led), name=f"producers on {leader}")
            for leader, led in by_leader.items()
        ]
        answers = [await task for task in asked]
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
            sequences.update(answer)
        return sequences

    def _own(self, target: WrittenTo) -> int:
        partition = self._partitions.leader(target.topic, target.partition)
        entry = partition.log.producers.entries.get(target.producer_id)
        if entry is None or entry.txn_first_offset < 0 or entry.epoch != target.producer_epoch:
            return NO_SEQUENCE
        return entry.last_sequence

    async def _ask(self, leader: int, targets: list[WrittenTo]) -> LastSequences | KafkaError:
        """Ask another broker; return its error, also for a partition that it does not lead."""
        try:
            response = await self._leaders.request(leader, _request(targets))
        except KafkaError as error:
            return error
        assert isinstance(response, DescribeProducersResponse)
        sequences: dict[WrittenTo, int] = {}
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code != ErrorCode.NONE:
                    return KafkaError(ErrorCode(row.error_code))
                for producer in row.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        identity = producer.producer_id, producer.producer_epoch
                        target = WrittenTo(topic.name, row.partition_index, *identity)
                        sequences[target] = producer.last_sequence
        return {target: sequences.get(target, NO_SEQUENCE) for target in targets}


def _request(targets: list[WrittenTo]) -> DescribeProducersRequest:
    by_topic = groupby(sorted(targets), key=lambda target: target.topic)
    return DescribeProducersRequest(
        topics=[
            TopicRequest(
                name=name, partition_indexes=sorted({target.partition for target in of_topic})
            )
            for name, of_topic in by_topic
        ],
        producer_ids=sorted({target.producer_id for target in targets}),
    )
