"""One Fetch request, from its plan to its response, at once or after it has waited."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.replica.divergence import DivergedLog
from lakelog.replica.fetch_session import FetchPlan, FetchTarget, topic_fields
from lakelog.replica.partition import Partition
from lakelog.replica.role import current_leader
from lakelog.replica.session_news import SessionNews
from lakelog.server.broker import Broker
from lakelog.server.fetches.reading import (
    READ_COMMITTED,
    ZSTD_SINCE,
    FollowerId,
    read_for_follower,
    read_one,
)
from lakelog.server.requests.context import Context
from lakelog.server.upkeep.stored_checks import Failures, NeededCheck
from lakelog.storage.indexes.txn_index import AbortedTransaction as Aborted
from lakelog.storage.preparation import NotReady
from lakelog.storage.segments.handles import LogSlice

_ROUNDS_MAX = 2


class PendingFetch:
    """One fetch request until it is answered."""

    __slots__ = (
        "_broker",
        "_bytes_max",
        "_committed",
        "_context",
        "_failed",
        "_failures",
        "_follower",
        "_noted",
        "_plan",
        "_rounds",
        "_to_check",
        "bytes_min",
        "deadline",
    )

    def __init__(
        self,
        broker: Broker,
        context: Context,
        request: FetchRequest,
        plan: FetchPlan,
        follower: FollowerId | None,
    ) -> None:
        """follower: that of the request (`follower_of`)."""
        self._broker = broker
        self._context = context
        self._plan = plan
        self._bytes_max = min(request.max_bytes, broker.fetch_bytes_max)
        self._committed = request.isolation_level == READ_COMMITTED
        self.bytes_min = min(request.min_bytes, self._bytes_max)
        self.deadline = 0.0
        """On the monotonic clock, when the fetch is answered with the records found so far."""
        self._to_check: list[NeededCheck] = []
        self._failures: Failures = {}
        self._follower = follower
        self._noted = False
        """Whether the leader has noted the positions of the follower that sends the request."""
        self._failed = False
        """Whether a partition has an error or a diverging epoch."""
        self._rounds = 0
        """Number of waits for checks."""

    def keys(self) -> list[tuple[bytes, int]]:
        """Return the partitions whose appends may complete this fetch."""
        find = self._broker.partitions.get
        partitions = (find(target.topic, target.partition) for target in self._plan.targets)
        return list(
            dict.fromkeys(partition.key for partition in partitions if partition is not None)
        )

    def wait(self) -> None:
        """Wait for records, or first for checks of existing ones; then answer."""
        broker, context = self._broker, self._context
        if self._to_check:
            # Checks come before the purgatory: no append would wake a fetch of existing records.
            self._rounds += 1
            needed, self._to_check = self._to_check, []
            broker.checks.run(needed, self._on_checked)
            return
        news = self._plan.news
        keys = self.keys() if news is None else ()
        parked = broker.purgatory.park(self, keys, self.deadline)
        if news is not None:
            news.parked = parked
        context.on_abandon = lambda: broker.purgatory.cancel(parked)

    def _on_checked(self, failures: Failures) -> None:
        self._failures = failures
        try:
            self._go_on()
        except Exception as error:  # noqa: BLE001 - it ends this connection, and nothing else
            self.fail(error)

    def _go_on(self) -> None:
        """Try again: the needed checks were made, or the deadline has passed."""
        is_due = self.deadline <= self._broker.clock.monotonic()
        response = self.read(at_least=0 if is_due else self.bytes_min)
        if response is None:
            self.wait()
        else:
            self._context.reply(response)

    def try_complete(self) -> bool:
        """Answer, or wait for checks; return whether the fetch leaves the purgatory."""
        response = self.read(at_least=self.bytes_min)
        if response is not None:
            self._context.reply(response)
        elif self._to_check:
            self.wait()
        else:
            return False
        return True

    def expire(self) -> None:
        """Answer with the records found so far, after necessary checks."""
        self._go_on()

    def fail(self, error: Exception) -> None:
        """Close the connection because of a bug, and complete the reply."""
        context = self._context
        context.connection.fail(context.api.name, error)
        if context.parts is None:
            context.complete([])

    def read(self, *, at_least: int) -> FetchResponse | None:
        """Return the response, or None if the fetch has to wait.

        It waits if there are fewer than `at_least` bytes and no error, or if data must be checked
        first. After some rounds of checks the rest is left to the next request: an index that was
        loaded for one partition may have been unloaded for another. An error of a partition is its
        error code in the response.
        """
        results = []
        size = 0
        self._plan.refresh()
        bytes_left = self._bytes_max
        self._failed = False
        self._note_time()
        for target in self._plan.targets:
            try:
                data = self._read_one(target, bytes_left, min_one=not size)
                size += len(data.records)
            except NotReady as first:
                partition = self._broker.partitions.leader(target.topic, target.partition)
                self._to_check.append((partition, first.job))
                data = self._without_records(target)
            except DivergedLog as diverged:
                self._failed = True
                data = self._divergence(target, diverged)
            except KafkaError as error:
                self._failed = self._context.was_rejected = True
                data = self._failure(target, error)
            bytes_left = self._bytes_max - size
            if bytes_left < 0:
                bytes_left = 0
            results.append((target, data))
        self._failures = {}
        self._noted = True
        return self._response_of(results, size, at_least)

    def _response_of(
        self, results: list[tuple[FetchTarget, PartitionData]], size: int, at_least: int
    ) -> FetchResponse | None:
        """Return the response, or None after releasing the found records."""
        is_complete, response = not self._to_check, None
        if size and self._rounds >= _ROUNDS_MAX:
            self._leave_checks()
        if (size >= at_least or self._failed) and not self._to_check:
            response = self._response(results)
        if is_complete and self._plan.news is not None:
            self._settle(results, self._plan.news)
        if response is not None:
            return response
        # The found ranges are not kept while the fetch waits: they would keep deleted files open.
        for target, data in results:
            if isinstance(data.records, LogSlice):
                data.records.release()
                self._count(target, -data.records.size)
        return None

    def _settle(self, results: list[tuple[FetchTarget, PartitionData]], news: SessionNews) -> None:
        """Read the idle partitions of a large session only after their next event.

        The next event on any other partition tries this fetch as well, if it waits.
        """
        find = self._broker.partitions.get
        for target, data in results:
            partition = find(target.topic, target.partition)
            if partition is None:
                continue
            topic_partition = (target.topic, target.partition)
            has_failed = data.error_code or data.diverging_epoch.end_offset >= 0
            if has_failed or not self._is_idle(partition, target):
                news.watch(topic_partition, partition.key)
                continue
            follower = None
            if self._follower is not None:
                follower = partition.followers.get(self._follower.node_id)
            news.settle(topic_partition, partition.key, follower)

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

    def _leave_checks(self) -> None:
        for _, job in self._to_check:
            job.abandon()
        self._to_check = []

    def _count(self, target: FetchTarget, size: int) -> None:
        self._broker.partitions.leader(target.topic, target.partition).fetched_bytes += size

    def _read_one(self, target: FetchTarget, bytes_left: int, *, min_one: bool) -> PartitionData:
        if self._failures:
            self._check_failures(target)
        ended: Sequence[Aborted] = ()
        if self._follower is None:
            partition, records, ended = read_one(
                self._broker, target, bytes_left, committed=self._committed, min_one=min_one
            )
        else:
            partition, records = read_for_follower(
                self._broker, self._follower, target, bytes_left, min_one=min_one
            )
            if not self._noted:
                now_ms = self._broker.clock.monotonic_ms()
                partition.note_fetch(
                    *self._follower, target.fetch_offset, now_ms, target.log_start_offset
                )
        log = partition.log
        if self._context.version < ZSTD_SINCE and log.config.compression_type == "zstd":
            if records is not None:
                records.release()
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if records is not None:
            partition.fetched_bytes += records.size
        aborted = None
        if self._committed:
            aborted = [AbortedTransaction(producer_id=e[0], first_offset=e[1]) for e in ended]
        return PartitionData(
            partition_index=target.partition,
            high_watermark=partition.watermark.offset,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=b"" if records is None else records,
        )

    def _note_time(self) -> None:
        """Note the request of a follower for all idle partitions of its session."""
        news = self._plan.news
        if news is not None and self._follower is not None and not self._noted:
            news.fetched_ms = int(self._broker.clock.monotonic() * 1000)

    def _check_failures(self, target: FetchTarget) -> None:
        partition = self._broker.partitions.leader(target.topic, target.partition)
        if partition in self._failures:
            raise self._failures[partition]

    def _divergence(self, target: FetchTarget, diverged: DivergedLog) -> PartitionData:
        data = self._without_records(target)
        data.diverging_epoch = EpochEndOffset(epoch=diverged.epoch, end_offset=diverged.end_offset)
        return data

    def _without_records(self, target: FetchTarget) -> PartitionData:
        partition = self._broker.partitions.leader(target.topic, target.partition)
        return PartitionData(
            partition_index=target.partition,
            high_watermark=partition.watermark.offset,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )

    def _failure(self, target: FetchTarget, error: KafkaError) -> PartitionData:
        self._broker.requests.errors["Fetch", error.code] += 1
        return PartitionData(
            partition_index=target.partition,
            error_code=error.code,
            high_watermark=-1,
            current_leader=current_leader(error),
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )

    def _response(self, results: list[tuple[FetchTarget, PartitionData]]) -> FetchResponse:
        plan = self._plan
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        for target, data in results:
            if plan.session is not None and not plan.includes(
                target,
                data.error_code or int(data.diverging_epoch.end_offset >= 0),
                len(data.records),
                data.high_watermark,
                data.log_start_offset,
            ):
                continue
            if target.topic != last:
                last = target.topic
                name, topic_id = topic_fields(last)
                topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id))
            topics[-1].partitions.append(data)
        response = FetchResponse(session_id=plan.session_id, responses=topics)
        if self._failed:
            leaders = (data.current_leader for _, data in results)
            connection = self._context.connection
            response.node_endpoints = self._broker.endpoints_of(connection, leaders)
        return response
