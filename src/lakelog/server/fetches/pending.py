"""One Fetch request until it is answered: it reads, and waits for records or for checks."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.replica.fetch_session import FetchPlan, FetchTarget, topic_fields
from lakelog.replica.followers import FollowerId
from lakelog.replica.partition import Partition
from lakelog.replica.role import current_leader
from lakelog.replica.session_news import SessionNews
from lakelog.server.broker import Broker
from lakelog.server.fetches.reading import (
    NO_RECORDS,
    READ_COMMITTED,
    ZSTD_SINCE,
    DivergedLog,
    PartitionRead,
    ReadResult,
    ReadWait,
    read,
)
from lakelog.server.requests.context import Context
from lakelog.server.upkeep.stored_checks import Failures, NeededCheck
from lakelog.storage.segments.handles import LogSlice

_ROUNDS_MAX = 2


class _Reads:
    """The results of reading all partitions. The caller releases them, or hands them over.

    needed: the checks that reads wait for. size: of `slices`, in bytes.
    """

    __slots__ = ("entries", "has_failed", "needed", "size", "slices")

    def __init__(self) -> None:
        self.entries: list[PartitionRead] = []
        self.slices: list[LogSlice] = []
        self.needed: list[NeededCheck] = []
        self.has_failed = False
        self.size = 0


class PendingFetch:
    """One fetch request until it is answered.

    Args:
        now: when the request was taken up, on the monotonic clock, in seconds.
        follower: that of the request (`follower_of`).
        is_noted: whether the partition has noted the position of the follower.
    """

    __slots__ = (
        "_broker",
        "_bytes_max",
        "_bytes_min",
        "_committed",
        "_context",
        "_deadline",
        "_failures",
        "_fetched_at",
        "_follower",
        "_plan",
        "_reply",
        "_rounds",
    )

    def __init__(
        self,
        broker: Broker,
        context: Context,
        request: FetchRequest,
        plan: FetchPlan,
        reply: FetchReply,
        now: float,
        follower: FollowerId | None,
        *,
        is_noted: bool = False,
    ) -> None:
        self._broker = broker
        self._context = context
        self._plan = plan
        self._reply = reply
        self._committed = request.isolation_level == READ_COMMITTED
        self._bytes_max = min(request.max_bytes, broker.fetch_bytes_max)
        waits = request.max_wait_ms > 0 and (plan.targets or plan.session is not None)
        self._bytes_min = min(request.min_bytes, self._bytes_max) if waits else 0
        """The fetch waits for so many bytes."""
        self._deadline = now + request.max_wait_ms / 1000
        self._follower = follower
        self._fetched_at = None if is_noted else now
        self._failures: Failures = {}
        self._rounds = 0
        """Number of waits for checks."""

    def start(self) -> None:
        """Answer, or wait for records or for checks of existing ones."""
        if not self._answer():
            self.park()

    def park(self, keys: Sequence[tuple[bytes, int]] = ()) -> None:
        """Wait for records until the deadline; `keys` as of `keys()`, if the caller has them."""
        broker, session = self._broker, self._plan.session
        news = None if session is None else session.news
        if news is None:
            keys = keys or self.keys()
        parked = broker.purgatory.park(self, keys, self._deadline)
        if news is not None:
            news.parked = parked
        self._context.on_abandon = lambda: broker.purgatory.cancel(parked)

    def keys(self) -> list[tuple[bytes, int]]:
        """Return the partitions whose appends may complete this fetch."""
        find = self._broker.partitions.get
        partitions = (find(target.topic, target.partition) for target in self._plan.targets)
        return list(
            dict.fromkeys(partition.key for partition in partitions if partition is not None)
        )

    def try_complete(self) -> bool:
        """Answer, or wait for checks; return whether the fetch leaves the purgatory."""
        self._plan.refresh()
        return self._answer()

    def expire(self) -> None:
        """Answer with the records found so far, after necessary checks."""
        self._bytes_min = 0
        self._plan.refresh()
        self.start()

    def _on_checked(self, failures: Failures) -> None:
        self._failures = failures
        try:
            self._plan.refresh()
            self.start()
        except Exception as error:  # noqa: BLE001 - it ends this connection, and nothing else
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Close the connection because of a bug, and complete the reply."""
        self._context.fail(error)

    def _answer(self) -> bool:
        """Answer or have data checked; return False if the fetch has to wait for records.

        It waits if there are fewer than `_bytes_min` bytes and no error. After some rounds of
        checks the rest is left to the next request: an index that was loaded for one partition may
        have been unloaded for another.
        """
        reads, session = self._read(), self._plan.session
        checks = bool(reads.needed) and not (reads.size and self._rounds >= _ROUNDS_MAX)
        answers = not checks and (reads.has_failed or reads.size >= self._bytes_min)
        # The connection releases the slices of a response, and the checks take over their jobs. No
        # slice is kept while the fetch waits: it would keep a deleted file open.
        if not answers:
            for records in reads.slices:
                records.release()
        if checks:
            # Checks come before the purgatory: no append would wake a fetch of existing records.
            self._rounds += 1
            self._broker.checks.run(reads.needed, self._on_checked)
        else:
            for _, job in reads.needed:
                job.abandon()
        if answers:
            self._reply.send(reads.entries)
        if not reads.needed and session is not None and session.news is not None:
            self._complete(reads.entries, session.news)
        return checks or answers

    def _read(self) -> _Reads:
        """Read all partitions of the plan."""
        reads = _Reads()
        bytes_left = self._bytes_max
        for target in self._plan.targets:
            partition, result = self._read_one(target, bytes_left, min_one=not reads.size)
            reads.entries.append((target, partition, result))
            if isinstance(result, ReadWait):
                if result.job is not None:
                    assert partition is not None
                    reads.needed.append((partition, result.job))
            elif isinstance(result, KafkaError):
                reads.has_failed = True
            else:
                reads.slices.append(result)
                reads.size += result.size
                bytes_left = self._bytes_max - reads.size
            # As in Kafka, a negative limit is an error of the first partition alone.
            if bytes_left < 0:
                bytes_left = 0
        self._failures = {}
        self._fetched_at = None
        return reads

    def _read_one(
        self, target: FetchTarget, bytes_left: int, *, min_one: bool
    ) -> tuple[Partition | None, ReadResult]:
        partition = None
        try:
            partition = self._broker.partitions.leader(target.topic, target.partition)
            if self._failures and partition in self._failures:
                raise self._failures[partition]
            if (
                self._context.version < ZSTD_SINCE
                and partition.log.config.compression_type == "zstd"
            ):
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        except KafkaError as error:
            return partition, error
        return partition, read(
            partition,
            target,
            bytes_left,
            committed=self._committed,
            min_one=min_one,
            follower=self._follower,
            fetched_at=self._fetched_at,
        )

    def _complete(self, reads: list[PartitionRead], news: SessionNews) -> None:
        """Read the idle partitions of a large session only after their next event.

        The next event on any other partition tries this fetch as well, if it waits.
        """
        find = self._broker.partitions.get
        for target, _, result in reads:
            partition = find(target.topic, target.partition)
            if partition is None:
                continue
            topic_partition = (target.topic, target.partition)
            if isinstance(result, KafkaError) or not self._is_idle(partition, target):
                news.watch(topic_partition, partition.key)
                continue
            follower = None
            if self._follower is not None:
                follower = partition.followers.get(self._follower.node_id)
            news.conclude(topic_partition, partition.key, follower)

    def _is_idle(self, partition: Partition, target: FetchTarget) -> bool:
        """Return whether a read finds nothing that the client does not know."""
        if self._follower is not None:
            end = partition.log.log_end_offset
        else:
            end = partition.last_stable_offset if self._committed else partition.watermark.offset
        return (
            target.fetch_offset == end
            and target.sent_high_watermark == partition.watermark.offset
            and target.sent_log_start_offset == partition.log.log_start_offset
        )


class FetchReply:
    """The reply to one request.

    Args:
        committed: whether the request is `read_committed`.
    """

    __slots__ = ("_broker", "_committed", "_context", "_plan")

    def __init__(
        self, broker: Broker, context: Context, plan: FetchPlan, *, committed: bool
    ) -> None:
        self._broker = broker
        self._context = context
        self._plan = plan
        self._committed = committed

    def send(self, reads: list[PartitionRead]) -> None:
        """Complete the reply; the connection then owns the slices in `reads`.

        A session omits partitions without changes.
        """
        plan, context = self._plan, self._context
        in_session = plan.session is not None
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        leaders = []
        for target, partition, result in reads:
            if isinstance(result, KafkaError):
                data = self._failure(target.partition, partition, result)
                leaders.append(data.current_leader)
            else:
                assert partition is not None
                data = self._success(partition, result)
            if in_session:
                has_failed = isinstance(result, KafkaError)
                size = result.size if isinstance(result, LogSlice) else 0
                watermark, log_start = data.high_watermark, data.log_start_offset
                if not plan.includes(target, has_failed, size, watermark, log_start):
                    continue
            if target.topic != last:
                last = target.topic
                name, topic_id = topic_fields(last)
                topic = FetchableTopicResponse(topic=name, topic_id=topic_id)
                topics.append(topic)
            topic.partitions.append(data)
        response = FetchResponse(session_id=plan.session_id, responses=topics)
        if leaders:
            response.node_endpoints = self._broker.endpoints_of(context.connection, leaders)
        context.reply(response)

    def _failure(self, index: int, partition: Partition | None, error: KafkaError) -> PartitionData:
        if isinstance(error, DivergedLog):
            assert partition is not None
            data = self._success(partition, NO_RECORDS)
            data.diverging_epoch = DivergingEpoch(epoch=error.epoch, end_offset=error.end_offset)
            return data
        self._context.was_rejected = True
        self._broker.requests.errors["Fetch", error.code] += 1
        return PartitionData(
            partition_index=index,
            error_code=error.code,
            high_watermark=-1,
            current_leader=current_leader(error),
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )

    def _success(self, partition: Partition, result: LogSlice | ReadWait) -> PartitionData:
        aborted: list[AbortedTransaction] | None = [] if self._committed else None
        records: LogSlice | bytes = b""
        if isinstance(result, LogSlice):
            records = result
            partition.fetched_bytes += result.size
            if aborted is not None:
                aborted.extend(
                    AbortedTransaction(
                        producer_id=entry.producer_id, first_offset=entry.first_offset
                    )
                    for entry in result.aborted
                )
        return PartitionData(
            partition_index=partition.index,
            high_watermark=partition.watermark.offset,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )
