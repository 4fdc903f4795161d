"""The producer's batches: which may be sent now, and the effect of each response. No I/O.

Batches of a partition are sent in order and stay in order: a retried batch returns to its place,
and later batches wait for it. With sequences the broker enforces the same order, so up to
`max_in_flight` batches may be in flight. The caller holds a lock around every call.

Times are seconds on a monotonic clock, sizes bytes before compression.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError, NotWrittenError, OutcomeUnknownError, pause_s
from lakelog.client.producer.batch import OpenBatch, PartitionQueue, ProducerBatch, Records
from lakelog.client.producer.results import BatchResult, Verdict, judge, maybe_written
from lakelog.records.builder import BatchBuilder

_FAILED_MAX = 1000


@dataclass(slots=True, frozen=True)
class Settings:
    """The settings of a producer that affect its batches and requests.

    Times are in seconds, sizes in bytes.
    """

    codec: int
    linger_s: float
    delivery_timeout_s: float
    max_in_flight: int
    is_idempotent: bool
    is_transactional: bool = False
    acks: int = -1
    max_request_bytes: int = 1 << 20
    request_timeout_s: float = 30.0
    transactional_id: str | None = None


class Accumulator:
    """All batches of a producer that have no result yet."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._busy: dict[PartitionQueue, None] = {}
        self.buffered_bytes = 0
        """The size of all batches except the open ones."""
        self.is_flushing = False
        """Whether to send open batches without waiting for more records."""
        self._failed: list[BatchResult] = []
        self.first_failure: ClientError | None = None
        """The first failure since the transaction began, reported or not."""

    @property
    def is_idle(self) -> bool:
        """Whether no record waits for its acknowledgement."""
        return not self._busy

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition; create it if necessary."""
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition)
        return queue

    def open(self, queue: PartitionQueue, now_s: float) -> OpenBatch:
        """Return the open batch of a partition, or a new one. `close` it when it is full.

        `now_s` becomes the time from which linger and delivery timeout count.
        """
        batch = queue.open
        if batch is None:
            batch = queue.open = OpenBatch(
                queue,
                BatchBuilder(self._settings.codec),
                now_s,
                is_transactional=self._settings.is_transactional,
            )
            self._busy[queue] = None
        return batch

    def add(self, queue: PartitionQueue, records: Records, now_s: float) -> ProducerBatch:
        """Add a whole batch after the open one, which is closed; return it. `now_s`: see `open`."""
        self.close(queue)
        is_transactional = self._settings.is_transactional
        batch = ProducerBatch(queue, records, now_s, is_transactional=is_transactional)
        queue.waiting.append(batch)
        self._busy[queue] = None
        self.buffered_bytes += batch.size
        return batch

    def drop_empty(self, queue: PartitionQueue) -> None:
        """Drop an open batch whose first record could not be added; others are kept."""
        if queue.open is not None and not queue.open.builder.count:
            queue.open = None
            if queue.is_idle:
                self._busy.pop(queue, None)

    def close(self, queue: PartitionQueue) -> None:
        """Close the open batch of a partition, if it has one; it counts as buffered now."""
        if queue.open is not None:
            self.buffered_bytes += queue.open.size
            queue.close_open()

    def ready(self, now_s: float) -> list[PartitionQueue]:
        """Return the partitions whose next batch may be sent at `now_s`."""
        return self.still_ready(self._busy, now_s)

    def still_ready(self, queues: Iterable[PartitionQueue], now_s: float) -> list[PartitionQueue]:
        """Return the `queues` that may send another batch at `now_s`."""
        return [queue for queue in queues if self._wait_s(queue, now_s) <= 0]

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until the next partition becomes ready or the next batch expires.

        Return `None` if neither will happen. Pass the `now_s` of the last call of `ready`, so that
        no partition becomes ready between the two calls unnoticed. Times are on a monotonic clock.
        """
        waits = [self._wait_s(queue, now_s) for queue in self._busy]
        expiries = [
            max(oldest.created_s + self._settings.delivery_timeout_s - now_s, 0.0)
            for queue in self._busy
            if (oldest := queue.oldest_unsent) is not None
        ]
        return min([*(wait for wait in waits if 0 < wait < float("inf")), *expiries], default=None)

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """Return the next batch of a ready partition; it is in flight and has its sequence."""
        if not queue.waiting:
            self.close(queue)
        batch = queue.waiting.popleft()
        if self._settings.is_idempotent:
            # Only now: a batch that expires unsent must not leave a gap in the sequences.
            queue.assign_sequence(batch)
        batch.attempts += 1
        # In flight before it is sent: a lost connection must find every batch whose outcome is
        # unknown.
        queue.in_flight.append(batch)
        return batch

    def answer(
        self,
        batch: ProducerBatch,
        code: ErrorCode,
        now_s: float,
        *,
        base_offset: int = -1,
        append_time_ms: int = -1,
        message: str = "",
    ) -> Verdict:
        """Process the broker's result of a batch in flight; return the verdict.

        A retried batch returns to its queue. Other results complete the batch, with
        `NotWrittenError` or `OutcomeUnknownError` for an error. After FATAL the caller fails all
        batches.
        append_time_ms: milliseconds since the epoch, -1 with CreateTime.
        """
        queue = batch.queue
        verdict = judge(code, is_first=queue.is_first(batch))
        if verdict is Verdict.RENUMBER and self._settings.is_transactional:
            verdict = Verdict.FAIL  # a new epoch would begin a new transaction
        # Its cause has to be removed at the broker; another attempt only waits longer.
        is_disk = code is ErrorCode.KAFKA_STORAGE_ERROR
        batch.last_code = code if is_disk else ErrorCode.REQUEST_TIMED_OUT
        batch.last_error = f"{code.name}: {message}" if message else code.name
        if verdict is Verdict.DONE:
            self._end(batch)
            batch.result.succeed(base_offset, append_time_ms)
        elif verdict in (Verdict.RETRY, Verdict.RENUMBER):
            batch.is_maybe_written |= maybe_written(code)
            self._retry(batch, verdict, now_s)
        else:
            batch.is_maybe_written |= maybe_written(code)
            self._end(batch)
            self._fail(batch, code, batch.last_error)
        return verdict

    def expire(self, now_s: float) -> list[ProducerBatch]:
        """Fail and return waiting batches whose delivery timeout has passed (KIP-91).

        Batches in flight are not failed: their requests have a timeout of their own.
        """
        limit = now_s - self._settings.delivery_timeout_s
        expired = []
        for queue in list(self._busy):
            if queue.open is not None and queue.open.created_s <= limit:
                self.close(queue)
            # The oldest is first, as batches keep their order.
            while queue.waiting and queue.waiting[0].created_s <= limit:
                batch = queue.waiting.popleft()
                self._release(batch)
                what = batch.last_error or "it could not be sent"
                text = f"delivery timed out after {self._settings.delivery_timeout_s:g} s: {what}"
                self._fail(batch, batch.last_code, text)
                expired.append(batch)
        return expired

    def fail_all(self, code: ErrorCode, reason: str) -> None:
        """Complete all batches with an error: `OutcomeUnknownError` if they may be written."""
        for queue in list(self._busy):
            self.close(queue)
            for batch in queue.in_flight:
                # The request may have reached the broker although its response did not arrive.
                batch.is_maybe_written = True
            batches: Iterable[ProducerBatch] = [*queue.in_flight, *queue.waiting]
            queue.in_flight.clear()
            queue.waiting.clear()
            for batch in batches:
                self._release(batch)
                self._fail(batch, code, reason)

    def begin_transaction(self, producer_id: int, producer_epoch: int) -> None:
        """Use this producer id and epoch for all partitions from now on.

        There must be no batches, which each partition asserts.
        """
        self._failed.clear()
        self.first_failure = None
        for queue in self._queues.values():
            queue.begin_transaction(producer_id, producer_epoch)

    @property
    def has_sent(self) -> bool:
        """Whether a broker may have a record of the transaction."""
        return any(queue.next_sequence for queue in self._queues.values())

    def written(self) -> dict[tuple[str, int], int]:
        """Return the number of records by partition since the transaction began.

        There must be no batches, and no failure. Sequences count the records of a transaction.
        """
        assert self.is_idle and self.first_failure is None
        return {
            key: queue.next_sequence for key, queue in self._queues.items() if queue.next_sequence
        }

    def drop_waiting(self, code: ErrorCode, reason: str) -> None:
        """Complete all batches that are not in flight with an error."""
        for queue in list(self._busy):
            self.close(queue)
            while queue.waiting:
                batch = queue.waiting.popleft()
                self._release(batch)
                self._fail(batch, code, reason)

    def take_failure(self) -> ClientError | None:
        """Return the first failure since the last call that no `Delivery` has raised."""
        unseen = [result.error for result in self._failed if not result.is_noticed]
        self._failed.clear()
        return unseen[0] if unseen else None

    def _wait_s(self, queue: PartitionQueue, now_s: float) -> float:
        """Return the seconds until the partition may send; infinite if it waits for a response."""
        settings = self._settings
        if queue.renumber_wanted and not queue.in_flight:
            # Only without batches in flight: they would be duplicates if the old epoch wrote them.
            queue.renumber()
        if queue.renumber_wanted or len(queue.in_flight) >= settings.max_in_flight:
            return float("inf")
        if queue.waiting or self.is_flushing:
            due = queue.not_before_s if queue.waiting or queue.open else float("inf")
        elif queue.open is not None:
            due = max(queue.open.created_s + settings.linger_s, queue.not_before_s)
        else:
            due = float("inf")
        return due - now_s

    def _retry(self, batch: ProducerBatch, verdict: Verdict, now_s: float) -> None:
        queue = batch.queue
        queue.put_back(batch)
        queue.not_before_s = now_s + pause_s(batch.attempts - 1)
        if verdict is Verdict.RENUMBER:
            # RENUMBER means that the broker does not have the batch; see `judge`.
            batch.is_maybe_written = False
            queue.renumber_wanted = True

    def _end(self, batch: ProducerBatch) -> None:
        batch.queue.in_flight.remove(batch)
        self._release(batch)

    def _release(self, batch: ProducerBatch) -> None:
        self.buffered_bytes -= batch.size
        if batch.queue.is_idle:
            self._busy.pop(batch.queue, None)

    def _fail(self, batch: ProducerBatch, code: ErrorCode, reason: str) -> None:
        where = f"{batch.queue.topic}-{batch.queue.partition}"
        count = batch.records.count
        records = "1 record" if count == 1 else f"{count} records"
        error: ClientError
        if batch.is_maybe_written:
            text = f"{records} for {where} may or may not be written: {reason}"
            error = OutcomeUnknownError(code, text)
        else:
            error = NotWrittenError(code, f"{records} for {where} not written: {reason}")
        batch.result.fail(error)
        self.first_failure = self.first_failure or error
        # Bounded: a producer that never flushes must not keep all its failures.
        if len(self._failed) < _FAILED_MAX:
            self._failed.append(batch.result)
