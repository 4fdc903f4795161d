"""One partition as this broker holds it: a log, a leader epoch and the high watermark.

A partition has one owner, the loop; no method suspends. Consumers read up to the high watermark
(`lakelog.replica.watermark`), and `read_committed` consumers up to the last stable offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.base.shortage import OutOfRoomError, is_shortage, no_space
from lakelog.records.control import EndTransactionMarker
from lakelog.replica.recompressed import recompressed
from lakelog.replica.watermark import HighWatermark
from lakelog.replica.written import Written
from lakelog.storage.errors import CorruptLog
from lakelog.storage.folder.reserve import SpaceGate
from lakelog.storage.indexes.txn_index import AbortedTransaction
from lakelog.storage.log import AppendResult, Log
from lakelog.storage.preparation import NotReady
from lakelog.storage.producers.verification import Verification
from lakelog.storage.reading.seeking import check_append
from lakelog.storage.reading.timestamps import Search
from lakelog.storage.segments.checking import UncheckedSlice, begin_check
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.validation.batches import Origin

logger = logging.getLogger(__name__)


class Partition:
    """Raises `KafkaError` from every method that the protocol has an answer for."""

    __slots__ = (
        "_damage_told",
        "_flush_soon",
        "_gate",
        "_note_shortage",
        "_retired",
        "_settled",
        "fetched_bytes",
        "flushed_ms",
        "index",
        "key",
        "leader_epoch",
        "log",
        "offline_reason",
        "topic",
        "topic_id",
        "watermark",
        "written",
    )

    def __init__(
        self,
        log: Log,
        leader_epoch: int,
        flush_soon: Callable[[Partition], object],
        settled: Callable[[Partition], object] = lambda partition: None,
        note_shortage: Callable[[OSError], object] = lambda error: None,
        gate: SpaceGate | None = None,
    ) -> None:
        """`flush_soon` is called when a segment was closed, and for every append that a flush is to
        commit; `note_flush` is to follow. `settled` is called when that, or a failure,
        has decided of records that were not committed by their append. `note_shortage` is called
        with each error that `is_shortage`. While the `gate` is shut nothing is appended.
        """
        self.topic = log.topic
        self.topic_id = log.topic_id
        self.index = log.partition
        self.key = (log.topic_id, log.partition)
        self.log = log
        self.leader_epoch = leader_epoch
        self.offline_reason: str | None = None
        self._retired = False
        self.flushed_ms = 0
        """When `flush.ms` last had it flushed."""
        self._flush_soon = flush_soon
        self._settled = settled
        self._note_shortage = note_shortage
        self._gate = gate or SpaceGate()
        self.watermark = HighWatermark(log)
        self.written = Written(log)
        self._damage_told = ""
        self.fetched_bytes = 0
        """Of records sent to consumers."""

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers may read, exclusive."""
        if self.log.producers.first_unstable_offset < 0:
            return self.watermark.offset
        return min(self.log.last_stable_offset, self.watermark.offset)

    @property
    def is_online(self) -> bool:
        return not self._retired and self.offline_reason is None

    def use_config(self, config: LogConfig) -> None:
        """Adopt new settings; records need not wait for a flush any longer if these say so."""
        self.log.config = config
        self.watermark.use_config()
        self.note_flush()

    def note_flush(self) -> None:
        """Commit what a flush that has ended made durable."""
        if self.watermark.advance():
            self._settled(self)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fences a client whose metadata is older or newer than this broker's (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(
        self,
        batch: bytearray | memoryview,
        now_ms: int,
        *,
        origin: Origin = "client",
        verification: Verification | None = None,
        sampled: bool = False,
    ) -> AppendResult:
        """Appends one record batch, whose offset and epoch fields are overwritten in place.

        A transactional batch needs its producer to have a transaction here already, or the
        `verification` that was taken before the transaction's coordinator was asked. The records
        of a `sampled` one are verified. Raises `NotReady`, with nothing done, after a start.
        """
        self.check_online()
        log, config = self.log, self.log.config
        if config.compression_type != "producer" and origin == "client":
            batch = recompressed(batch, config)
        try:
            if self._gate.is_shut:
                raise no_space()
            if log.segments.active.loaded_index is None:
                check_append(log.segments)
            result = log.append(
                batch,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                verification=verification,
                sampled=sampled,
            )
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        self._follow_append()
        return result

    def _follow_append(self) -> None:
        """Commits what was appended, or has it flushed first.

        Raises KAFKA_STORAGE_ERROR, with the batch in the log: if the partition is online then, the
        batch is committed by now, as whoever reads the log after an error must see what is in it.
        """
        log, unflushed = self.log, None
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            try:
                log.flush()
            except (OSError, CorruptLog) as error:
                failure = self.storage_error(error)
                unflushed = KafkaError(failure.code, failure.message)
                if not self.is_online:
                    raise unflushed from error
        watermark = self.watermark
        if watermark.by_flush:
            self.note_flush()
            if watermark.offset < log.log_end_offset:
                self._flush_soon(self)
        else:
            watermark.advance()
            if unflushed is not None:
                self._flush_soon(self)
                raise unflushed
        if self.written.note_roll():
            self._flush_soon(self)

    def append_run(self, batches: Sequence[memoryview], now_ms: int) -> list[int]:
        """As `append` for a client's batches that have come together; see `Log.append_run`.

        After a `KafkaError` nothing was done to them.
        """
        if self._retired or self.offline_reason is not None or self._gate.is_shut:
            return []
        log = self.log
        try:
            offsets = log.append_run(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        if offsets:
            self.watermark.advance()
        return offsets

    def start_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool,
    ) -> Verification | None:
        """To be taken before the transaction's coordinator is asked about this partition (KIP-890).

        `None` when nobody need be asked: the producer has a transaction here. A client that
        `supports_epoch_bump` speaks transaction version 2. Raises `KafkaError` 47.
        """
        self.check_online()
        return self.log.producers.start_verification(
            producer_id,
            producer_epoch,
            base_sequence,
            now_ms,
            supports_epoch_bump=supports_epoch_bump,
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        *,
        transaction_version: int,
    ) -> int:
        """Ends a producer's transaction, if it has one here; the marker's offset.

        Raises `KafkaError` 47 or 52 for the marker of an older epoch or an older coordinator, and
        `NotReady` as `append`.
        """
        self.check_online()
        before = self.written.all_bytes
        try:
            self._gate.check()
            self.log.check_marker(commit=commit)
            offset = self.log.append_marker(
                producer_id,
                producer_epoch,
                EndTransactionMarker(commit, coordinator_epoch),
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
            )
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        self._follow_append()
        self.written.note_marker(self.written.all_bytes - before)
        return offset

    @property
    def is_retired(self) -> bool:
        """Whether the topic was deleted."""
        return self._retired

    def become_leader(self, leader_epoch: int) -> None:
        """The epoch begins at the log's end."""
        self.leader_epoch = leader_epoch
        self.log.assign_epoch(leader_epoch)

    def read(
        self, offset: int, max_bytes: int, *, min_one: bool, end: int | None = None
    ) -> LogSlice | None:
        """Whole stored batches from the one that holds `offset`, up to the high watermark or `end`;
        `NotReady` for what has not been looked at yet, and where the device would have to be waited
        for to find the offset."""
        self.check_online()
        if end is None:
            end = self.watermark.offset
        try:
            found = self.log.read(
                offset, max_bytes, end_offset=end, min_one=min_one, may_wait=False
            )
            if type(found) is UncheckedSlice:
                raise NotReady(begin_check(found, self.log.leader_epochs))
        except (OSError, CorruptLog) as error:
            raise self._reading_error(error) from error
        return found

    def read_committed(
        self, offset: int, max_bytes: int, *, min_one: bool
    ) -> tuple[LogSlice | None, list[AbortedTransaction]]:
        """As `read`, up to the last stable offset, and which transactions in it were aborted."""
        log = self.log
        if log.producers.first_unstable_offset < 0 and not log.segments.has_aborted:
            return self.read(offset, max_bytes, min_one=min_one), []
        end = self.last_stable_offset
        found = self.read(offset, max_bytes, min_one=min_one, end=end)
        if found is None:
            return None, []
        try:
            return found, log.aborted_transactions(offset, found, may_wait=False)
        except NotReady:
            found.release()
            raise
        except (OSError, CorruptLog) as error:
            found.release()
            raise self._reading_error(error) from error

    def at_time(self, timestamp_ms: int | None) -> Search:
        """Looks for the first record at or after a time, or without one for that with the greatest
        timestamp. `SlowBatches.found` goes through the steps."""
        self.check_online()
        log = self.log
        try:
            found = yield from log.search_time(timestamp_ms)
        except (OSError, CorruptLog) as error:
            raise self._reading_error(error) from error
        return found if found is not None and found.offset < self.watermark.offset else None

    def delete_records(self, before: int) -> int:
        """Lets the log begin at `before` unless it does so later; returns where it begins.

        Raises OFFSET_OUT_OF_RANGE outside the committed log, and POLICY_VIOLATION for a topic that
        is compacted and nothing else. What is known of producers stays (KAFKA-7190).
        """
        self.check_online()
        log = self.log
        if log.config.cleanup_policy == {"compact"}:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a compacted topic go by key")
        if not 0 <= before <= self.watermark.offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{before} is not in 0 to {self.watermark.offset}"
            )
        log.advance_log_start(before)
        return log.log_start_offset

    def delete_old_segments(self, now_ms: int, *, at_once: bool = False) -> int:
        """Applies retention to what is committed; how many segments went. Raises `NotReady`."""
        self.check_online()
        try:
            end = self.watermark.offset
            return self.log.delete_old_segments(now_ms, end, at_once=at_once, may_wait=False)
        except (OSError, CorruptLog) as error:
            raise self._reading_error(error) from error

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `leader_epoch` and where it ends; (-1, -1) if unknown."""
        self.check_online()
        return self.log.leader_epochs.end_offset(leader_epoch, self.log.log_end_offset)

    def check_min_insync(self) -> None:
        """For `acks=all`: the leader alone is in sync, and the topic may ask for more."""
        if self.log.config.min_insync_replicas > 1:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def retire(self) -> None:
        """The topic was deleted, or the broker stops: nothing is served from here any more."""
        self._retired = True

    def take_offline(self, reason: str) -> None:
        """Stops serving: only a restart, which recovers the log from disk, brings it back."""
        logger.error(
            "partition %s-%d is offline: %s",
            self.topic,
            self.index,
            reason,
            extra=event("partition_offline", code="LL0304", topic=self.topic, partition=self.index),
        )
        self.offline_reason = reason
        self._settled(self)

    def check_online(self) -> None:
        if self._retired:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)

    def _reading_error(self, error: OSError | CorruptLog) -> KafkaError:
        """What is damaged is told where it is read; the rest of the log can be read on."""
        if isinstance(error, OSError):
            return self.storage_error(error)
        if str(error) != self._damage_told:
            # Consumers ask again and again; one line for a place is enough.
            self._damage_told = str(error)
            logger.error(
                "partition %s-%d: %s",
                self.topic,
                self.index,
                error,
                extra=event(
                    "records_damaged", code="LL0602", topic=self.topic, partition=self.index
                ),
            )
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))

    def storage_error(self, error: OSError | CorruptLog) -> KafkaError:
        """A shortage of space or descriptors is worth a retry; any other failure leaves the log's
        state unknown, and so does any failure to flush. A deleted topic has no files."""
        if self._retired:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_shortage(error) and not self.log.broken:
            self._note_shortage(error)
            return OutOfRoomError(error)
        self.take_offline(str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory failed")
