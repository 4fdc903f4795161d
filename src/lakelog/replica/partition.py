"""One partition as this broker holds it: a log, a role at one leader epoch, the high watermark.

A partition has one owner, the loop; no method suspends. Consumers read up to the high watermark
(`watermark.py`), and `read_committed` consumers up to the last stable offset. `role.py`
decides whether the partition is served, and translates failures of the log for clients.

These hold after every method: the log starts at or below the high watermark, the high watermark is
at or below the log end offset, and neither the high watermark nor the leader epoch ever falls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from functools import partial

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.records.batch import HEADER, BatchHeader, iter_batches
from lakelog.records.control import NO_DECISION, EndTransactionMarker
from lakelog.replica.followers import Follower, Followers
from lakelog.replica.role import NO_ROLE, Availability, NotLeaderError, Role
from lakelog.replica.topic_rules import archive_floor, recompressed
from lakelog.replica.watermark import HighWatermark
from lakelog.replica.written import WriteCounts
from lakelog.runtime.api import Buffer
from lakelog.storage.errors import CorruptLog
from lakelog.storage.folder.space import DiskSpaceGuard
from lakelog.storage.log import AppendResult, Log
from lakelog.storage.preparation import NotReady
from lakelog.storage.producers.beginnings import Verification
from lakelog.storage.reading.seeking import check_append
from lakelog.storage.reading.timestamps import Search
from lakelog.storage.segments.checking import UncheckedSlice, begin_check
from lakelog.storage.segments.handles import LogSlice
from lakelog.storage.validation import Origin

logger = logging.getLogger(__name__)


class _Held(DiskSpaceGuard):
    """The guard of a leader that hands over: nothing is appended by the short ways."""

    __slots__ = ("space",)

    def __init__(self, space: DiskSpaceGuard) -> None:
        super().__init__()
        self.rejects_writes = True
        self.space = space

    def check(self) -> None:
        self.space.check()


class Partition:
    """A replica. Only the leader appends, reads and deletes for clients.

    Methods for clients raise `NotLeaderError` if another broker leads the partition. Methods that
    use the log raise `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION for a deleted topic,
    KAFKA_STORAGE_ERROR for a partition that is offline or goes offline in the call, and
    `OutOfCapacityError` for a shortage of space or file descriptors. Other errors are named by the
    methods.
    """

    __slots__ = (
        "_appended",
        "_availability",
        "_changed",
        "_failed",
        "_flush_soon",
        "_proposed",
        "_space_guard",
        "epoch_start",
        "failed_in",
        "fetched_bytes",
        "flushed_ms",
        "followers",
        "held_bytes",
        "index",
        "key",
        "leader_epoch",
        "log",
        "role",
        "serves",
        "topic",
        "topic_id",
        "watermark",
        "written",
    )

    def __init__(
        self,
        log: Log,
        role: Role,
        flush_soon: Callable[[Partition], object],
        changed: Callable[[Partition], object] = lambda partition: None,
        note_shortage: Callable[[OSError], object] = lambda error: None,
        space_guard: DiskSpaceGuard | None = None,
        committed: int = 0,
        now_ms: int = 0,
        monotonic_ms: Callable[[], int] | None = None,
        failed: Callable[[Partition], object] = lambda partition: None,
        appended: Callable[[tuple[bytes, int]], object] = lambda key: None,
    ) -> None:
        """
        role: the first role of this broker; see `assume`, also for `now_ms`.
        flush_soon: called when a segment was closed, and for every append that only a flush
            commits. The owner flushes and then calls `note_flush`.
        changed: called when waiting records are committed, or will not be by this leader, and when
            the log start offset or the availability changes.
        note_shortage: called with each error for which `is_shortage` is true.
        space_guard: while it rejects writes, nothing is appended.
        committed: the high watermark of the last checkpoint.
        monotonic_ms: the clock of `now_ms`; without it, that time stands still.
        failed: called when stored records are found damaged, and when the log fails.
        appended: called with the key after records or a marker were appended for a client or a
            coordinator, whether they are committed already or not.
        """
        self.topic = log.topic
        self.topic_id = log.topic_id
        self.index = log.partition
        self.key = (log.topic_id, log.partition)
        self.log = log
        self.role = NO_ROLE
        self.leader_epoch = NO_ROLE.leader_epoch
        self.serves = False
        """Whether this broker leads the partition and its log can be used."""
        self.flushed_ms = 0
        """Time of the last flush for `flush.ms`, milliseconds since the epoch."""
        self._flush_soon = flush_soon
        self._changed = changed
        self._appended = appended
        self._space_guard = space_guard or DiskSpaceGuard()
        self._failed = failed
        self._availability = Availability(log, self._on_offline, note_shortage, self._on_failed)
        self.failed_in: int | None = None
        """The leader epoch in which damage or a failure was found, until the log is copied."""
        self._proposed: frozenset[int] = frozenset()
        self.epoch_start = 0
        """The log end offset at the begin of the present leader epoch, on its leader."""
        self.followers = Followers()
        """The other replicas, if this broker is the leader."""
        self.watermark = HighWatermark(log, self.followers, committed)
        log.completes_markers = False
        self.written = WriteCounts(log)
        self.held_bytes = 0
        """Expired segments that the last retention kept for the topic's table, in bytes."""
        self.fetched_bytes = 0
        """Bytes of records sent to consumers."""
        log.producers.beginnings.clock_ms = monotonic_ms or (lambda: now_ms)
        self.assume(role, now_ms)

    @property
    def last_stable_offset(self) -> int:
        """The exclusive end of the records that `read_committed` consumers may read (KIP-98)."""
        if self.log.producers.first_unstable_offset < 0:
            return self.watermark.offset
        self._complete_markers()
        return min(self.log.last_stable_offset, self.watermark.offset)

    @property
    def compactable_end(self) -> int:
        """The end of the records that compaction may remove (exclusive)."""
        return self._kept_for_table(self.last_stable_offset)

    @property
    def is_online(self) -> bool:
        """Whether the partition serves requests."""
        return self._availability.is_online

    @property
    def is_retired(self) -> bool:
        """Whether the topic was deleted, or the broker is stopping."""
        return self._availability.is_retired

    @property
    def offline_reason(self) -> str | None:
        """Reason for users, or `None` unless the log has failed."""
        return self._availability.offline_reason

    def use_config(self, config: LogConfig) -> None:
        """Apply new settings; records that need no flush under these are committed."""
        needed_flush = self.watermark.by_flush
        self._apply_config(config)
        self._commit_by_config(needed_flush)

    def _apply_config(self, config: LogConfig) -> None:
        self.log.use_config(config)
        self.watermark.use_config()

    def _commit_by_config(self, needed_flush: bool) -> None:
        self.note_flush()
        if not self.watermark.is_written:
            self._flush_soon(self)
        elif needed_flush or self.watermark.is_short:
            # Appends with `acks=1` waited for a flush. A coordinator that loads its records waits
            # for their commit no longer if too few replicas are in sync.
            self._changed(self)

    def note_flush(self) -> None:
        """Commit the records that a finished flush made durable."""
        if self.watermark.advance() or self.watermark.by_flush:
            self._complete_markers()
            self._changed(self)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose metadata is older or newer than this broker's (KIP-320).

        -1 is accepted. Raises `KafkaError`: FENCED_LEADER_EPOCH for an older epoch,
        UNKNOWN_LEADER_EPOCH for a newer one.
        """
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
        acks_all: bool = False,
        verification: Verification | None = None,
        sampled: bool = False,
    ) -> AppendResult:
        """Append one record batch; overwrite its offset and leader epoch in place.

        now_ms: milliseconds since the epoch.
        acks_all: whether to append only while `min.insync.replicas` are in sync.
        verification: of `start_verification`, for a transactional batch whose producer has no
            transaction in this partition yet.
        sampled: whether the records are verified in addition to the header.

        Raises `KafkaError` (NOT_ENOUGH_REPLICAS) for too few replicas in sync with `acks_all`,
        otherwise for a batch that Apache Kafka rejects too; `VerificationVoidedError`;
        `SlowBatchError` if the check would block the loop, and `NotReady`, with nothing done, if a
        thread must first load the indexes of the active segment.
        """
        self.check_leader()
        if acks_all:
            self.check_min_insync(batch)
        log, config = self.log, self.log.config
        if config.compression_type != "producer" and origin == "client":
            batch = recompressed(batch, config)
        try:
            if self._space_guard.rejects_writes and not self._repeats(batch):
                self._check_space_guard(acks_all=acks_all or origin != "client")
            if log.segments.active.indexes.loaded is None:
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
            failure = self.storage_error(error)
            self.await_rejected(batch, failure)
            raise failure from error
        end = log.log_end_offset
        # This holds for a duplicate as well: its offsets were assigned earlier and must still be in
        # the log.
        assert result.base_offset <= result.last_offset < end
        if (
            self.watermark.by_flush
            or end - log.flushes.recovery_point >= config.flush_messages
            or log.segments.active is not self.written.segment
        ):
            self._follow_append()
        else:
            self.watermark.advance()
        self._appended(self.key)
        return result

    def _follow_append(self) -> None:
        """Commit the appended batch, or schedule the flush that commits it or a closed segment.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR, or `OutOfCapacityError`'s code) if the flush for
        `flush.messages` fails. The batch is in the log then. If the partition is still online, the
        batch is committed before the error is raised: the producer may check whether its records
        were stored, and must find them.
        """
        log, unflushed = self.log, None
        if log.log_end_offset - log.flushes.recovery_point >= log.config.flush_messages:
            try:
                log.flush()
            except (OSError, CorruptLog) as error:
                failure = self.storage_error(error)
                unflushed = KafkaError(failure.code, failure.message)
                if not self.is_online:
                    raise unflushed from error
        watermark = self.watermark
        watermark.advance()
        if watermark.by_flush:
            self._complete_markers()
            if watermark.written < log.log_end_offset:
                self._flush_soon(self)
        elif unflushed is not None:
            self._flush_soon(self)
            self._appended(self.key)
            raise unflushed
        if log.segments.active is not self.written.segment:
            self.written.note_roll()
            self._flush_soon(self)

    def _check_space_guard(self, *, acks_all: bool) -> None:
        self._space_guard.check()
        # Other records wait for the new leader, or are not acknowledged before it is known.
        if isinstance(self._space_guard, _Held) and not acks_all:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "the preferred replica is about to lead"
            )

    def hold(self) -> None:
        """Reject records that would be acknowledged here alone, until `release` or another leader
        epoch.

        A replica that reaches the present end of the log then loses none when it takes over.
        """
        if not isinstance(self._space_guard, _Held):
            self._space_guard = _Held(self._space_guard)

    def release(self) -> None:
        """Append all records again."""
        if isinstance(self._space_guard, _Held):
            self._space_guard = self._space_guard.space

    def append_coalesced(
        self, batches: Sequence[memoryview], now_ms: int, *, acks_all: bool = False
    ) -> list[int]:
        """Append a group of a client's batches; return the base offset of each appended one.

        The batches after the returned ones are left to `append`; see `Log.append_coalesced`. After
        a `KafkaError` no batch was appended.

        acks_all: whether to append only while `min.insync.replicas` are in sync.
        """
        if not self.serves or self._space_guard.rejects_writes:
            return []
        log = self.log
        if acks_all and len(self.role.isr) < log.config.min_insync_replicas:
            return []
        try:
            offsets = log.append_coalesced(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        if offsets:
            self.watermark.advance()
            self._appended(self.key)
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
        """Begin to verify that a transaction includes this partition (KIP-890).

        The caller asks the transaction's coordinator and passes the result to `append`. A write for
        the producer in between invalidates it. Return `None` if the producer has a transaction in
        this partition already, so that the coordinator need not be asked.

        supports_epoch_bump: whether the client uses transaction version 2.

        Raises `KafkaError` (INVALID_PRODUCER_EPOCH) for an older epoch.
        """
        self.check_leader()
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
        decision: int = NO_DECISION,
    ) -> int:
        """Append a marker, which ends the producer's transaction, if any; return its offset.

        Raises `KafkaError`: NOT_ENOUGH_REPLICAS unless `min.insync.replicas` are in sync,
        INVALID_PRODUCER_EPOCH for an older epoch or a late marker, and
        TRANSACTION_COORDINATOR_FENCED for an older coordinator; `NotReady` as `append`.
        """
        self.check_leader()
        self.check_min_insync()
        try:
            self._space_guard.check()
            offset, size = self.log.append_marker(
                producer_id,
                producer_epoch,
                EndTransactionMarker(commit, coordinator_epoch, decision),
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
            )
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        self._follow_append()
        self.log.producers.commit_markers(self.watermark.offset)
        self.written.note_marker(size)
        self._appended(self.key)
        return offset

    def _complete_markers(self) -> None:
        """End the transactions whose markers are committed.

        A later leader may lack any other marker, and have the transaction open.
        """
        self.log.producers.commit_markers(self.watermark.offset)

    def assume(self, role: Role, now_ms: int, config: LogConfig | None = None) -> None:
        """Lead or follow from now on, in the leader epoch of `role`.

        The epoch of a leader begins at the log end offset (KIP-101). Operations of an earlier epoch
        fail: appends that wait to be committed, and verifications of transactions (KIP-890).

        now_ms: of the monotonic clock; followers count as caught up then.
        config: the settings that came with the role, if any. Nothing is committed in between: with
            the new role and the old minimum, an ISR that was chosen by the new one might commit
            alone; with the old role and a lower minimum, a leader that is deposed.
        """
        assert role.leader_epoch >= self.leader_epoch, "a leader epoch never falls"
        # The same leader epoch may come again with another ISR. That ends nothing: the leader's
        # positions of its followers and its pending operations stay valid.
        is_new = role.leader_epoch > self.leader_epoch or role.is_leader is not self.role.is_leader
        needed_flush = self.watermark.by_flush
        if config is not None:
            self._apply_config(config)
        self.role = role
        self.leader_epoch = role.leader_epoch
        self._update_serves()
        if role.is_leader:
            # Before the first append of the leader epoch. The empty epoch is also an answer to
            # followers that ask for it, which would otherwise truncate further than necessary
            # (KIP-101).
            self.log.assign_epoch(role.leader_epoch)
        elif is_new:
            self.log.forget_empty_epochs()
        if is_new:
            self.release()
            # A coordinator's answer belongs to the leader epoch in which it was asked: another
            # leader may have written a marker since (KIP-890).
            self.log.producers.verifications.void()
            self.followers.begin(role.followers, now_ms)
            # Followers join the ISR only once they have reached this offset: the high watermark of
            # a new leader may lag behind records that are committed already (KAFKA-7128).
            self.epoch_start = self.log.log_end_offset
            # Requests to the last leader may have failed, and later ones may arrive here before
            # these are repeated. The first leader has none before it.
            if role.followers and role.leader_epoch > 0:
                self.log.producers.beginnings.await_all()
        else:
            self.followers.keep(role.followers, now_ms)
        self._proposed = frozenset()
        self.watermark.use_role(role)
        # Waiting operations are called in a new leader epoch even if nothing was committed: they
        # have to fail with the leader's address, not at their timeout. Loading coordinators wait
        # for nothing that a short ISR cannot commit.
        if self.watermark.advance() or is_new or self.watermark.is_short:
            self._changed(self)
        if config is not None:
            self._commit_by_config(needed_flush)

    # Replication

    def propose_isr(self, isr: Sequence[int]) -> None:
        """Count these replicas, too, as in sync until the next role (KIP-497).

        Call it before the controller gets the proposal, and with no replicas after its refusal.
        """
        assert self.role.is_leader
        # The union of all proposals that are not answered: an earlier one may still be applied by
        # the controller, whose answer was lost.
        self._proposed = self._proposed.union(isr) if isr else frozenset()
        self.watermark.use_role(self.role, self._proposed)
        if self.watermark.advance():
            self._changed(self)

    def note_fetch(
        self, node_id: int, broker_epoch: int, offset: int, now_ms: int, log_start: int = 0
    ) -> None:
        """Note the position of a follower, which has everything from `log_start` to `offset`.

        broker_epoch: of the follower's registration (KIP-903).
        now_ms: of the monotonic clock.

        Raises `NotLeaderError` on a follower, and as `replica`.
        """
        self.check_leader()
        follower = self.replica(node_id, broker_epoch)
        follower.note_fetch(broker_epoch, offset, self.log.log_end_offset, now_ms)
        has_deleted = log_start > follower.log_start_offset
        follower.log_start_offset = log_start
        # DeleteRecords waits until every live replica has deleted its records (KIP-107).
        if self.watermark.advance() or has_deleted:
            self._changed(self)

    def low_watermark(self, live: Container[int]) -> int:
        """Return the offset before which no live replica has records, -1 if that is unknown.

        live: node ids of the live brokers (KIP-107).
        """
        own = self.log.log_start_offset
        others = self.followers.log_start(live)
        return own if others is None else min(own, others)

    def replica(self, node_id: int, broker_epoch: int) -> Follower:
        """Return a follower of this leader.

        Raises `KafkaError` (NOT_LEADER_OR_FOLLOWER) for a broker to which the partition is not
        assigned, or in a process before its present one.
        """
        follower = self.followers.get(node_id)
        # An earlier process of the broker may have had records that the present one lost with a
        # power failure. Its late fetches must commit nothing (KIP-903).
        if follower is None or broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {node_id} in epoch {broker_epoch} is no replica of "
                f"{self.topic}-{self.index}",
            )
        return follower

    def append_fetched(
        self,
        records: memoryview,
        leader_epoch: int,
        high_watermark: int,
        log_start: int,
        now_ms: int,
    ) -> None:
        """Append the batches of a leader's response, unchanged, and apply its offsets.

        leader_epoch: in which they were requested; a response to an earlier epoch is ignored.
        log_start: the leader's log start offset, below which it has deleted records.
        now_ms: milliseconds since the epoch.

        Raises `CorruptRecord` for a damaged batch, with the batches before it appended; `NotReady`
        as `append`; `KafkaError` if the log fails.
        """
        if leader_epoch != self.leader_epoch or self.role.is_leader:
            return
        self._availability.check()
        try:
            self._append_copies(records, now_ms)
            # After the append: the watermark must not lie beyond the end of the log.
            self.watermark.follow(high_watermark)
            self._complete_markers()
            if log_start > self.log.log_start_offset:
                # Not beyond the high watermark: this replica does not know yet that records up to
                # there are committed.
                self.log.advance_log_start(min(log_start, self.watermark.offset))
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        if self.watermark.by_flush or self.written.note_roll():
            self._flush_soon(self)

    def _append_copies(self, records: memoryview, now_ms: int) -> None:
        log = self.log
        while records := records[log.append_coalesced_fetched(records) :]:
            header, batch = next(iter_batches(records), (None, records))
            if header is None:
                return  # the response ends within a batch; the next fetch begins with it
            if header.last_offset >= log.log_end_offset:  # else a repeated call
                self._begin_with(header.base_offset)
                log.append_fetched(batch, now_ms=now_ms)
            records = records[header.size :]

    def _begin_with(self, base_offset: int) -> None:
        """Let an empty log begin where its first batch does.

        DeleteRecords may have left the start of the leader's log, where this one began, within a
        batch. A log holds whole batches; its start is then advanced as the leader's was.
        """
        if self.log.log_start_offset == self.log.log_end_offset > base_offset:
            counts = self.written.records, self.written.all_bytes
            self.log.restart_at(base_offset)
            self.written.note_cut(*counts)
            self.watermark.cut()

    def truncate(self, diverging_epoch: int, end_offset: int, leader_epoch: int) -> None:
        """Cut the log to where it agrees with the leader's (KIP-101, KIP-279).

        diverging_epoch, end_offset: the largest epoch that both logs may share, and its exclusive
            end in the leader's log.
        leader_epoch: in which the leader was asked; an answer to an earlier one is ignored.

        Committed records are cut only if the leader itself has lost them.

        Raises `KafkaError` if the log fails; `NotReady`, with nothing cut, if a thread must first
        replay the producers of the remaining log or load an index.
        """
        if leader_epoch != self.leader_epoch or self.role.is_leader:
            return
        log = self.log
        # Both logs may have ended that epoch at different offsets; only records below the smaller
        # end are surely the same (KIP-279).
        _, own_end = log.leader_epochs.end_offset(diverging_epoch, log.log_end_offset)
        end = min(end_offset, own_end) if own_end >= 0 else end_offset
        # Nothing of this log is known to agree with the leader's.
        if end < log.log_start_offset:
            self.restart_at(end_offset, leader_epoch)
            return
        self._cut("truncated", partial(log.truncate_to, end, may_wait=False))

    def restart_at(self, offset: int, leader_epoch: int) -> None:
        """Delete all records and begin at `offset`, the start of the leader's log.

        An answer to an earlier `leader_epoch` is ignored. Raises `KafkaError` if the log fails.
        """
        if leader_epoch == self.leader_epoch and not self.role.is_leader:
            self._cut("restarted", partial(self.log.restart_at, offset))

    def copy_again(self) -> None:
        """Delete all records, damaged ones among them, and copy the leader's log from its start.

        Only after the controller has removed this replica from the ISR and the ELR, in a later
        leader epoch than that of the damage: then no leader counts a position of it. Raises
        `KafkaError` if the log fails.
        """
        assert self.failed_in is not None
        assert self.leader_epoch > self.failed_in
        assert not self.role.is_leader
        self._cut("restarted", partial(self.log.restart_at, 0))
        self.failed_in = None
        self._availability.forget_damage()

    def _cut(self, verb: str, cut: Callable[[], object]) -> None:
        log, committed = self.log, self.watermark.offset
        before = log.log_end_offset
        # Truncated records have been counted as written, and a counter must not fall.
        counts = self.written.records, self.written.all_bytes
        self._availability.check()
        try:
            cut()
        except (OSError, CorruptLog) as error:
            raise self.storage_error(error) from error
        self.written.note_cut(*counts)
        self.watermark.cut()
        if self.watermark.by_flush:
            # A follower reports no position that is not durable, and without one it gets no records
            # whose append would request a flush.
            self._flush_soon(self)
        # A cut below the high watermark means that the leader lost committed records, as an unclean
        # election may.
        level = logging.ERROR if self.watermark.offset < committed else logging.INFO
        logger.log(
            level,
            "partition %s-%d: %s to offset %d of %d, as its leader's log, in leader epoch %d",
            self.topic,
            self.index,
            verb,
            log.log_end_offset,
            before,
            self.leader_epoch,
            extra=event(
                "replica_truncated",
                topic=self.topic,
                partition=self.index,
                offset=log.log_end_offset,
                before=before,
                high_watermark=committed,
            ),
        )

    def _update_serves(self) -> None:
        self.serves = self.role.is_leader and self.is_online

    def _on_failed(self) -> None:
        # A damaged log may go offline later, which is news.
        if self.failed_in is None:
            self.failed_in = self.leader_epoch
        self._failed(self)

    def _on_offline(self) -> None:
        self._update_serves()
        self._changed(self)

    def read(
        self, offset: int, max_bytes: int, *, min_one: bool, end: int | None = None
    ) -> LogSlice | None:
        """Return the slice of whole batches from the batch with `offset` on, or `None` at the end.

        max_bytes: largest size of the slice, except that `min_one` allows one larger batch.
        end: exclusive; the high watermark by default.

        Raises `KafkaError`: OFFSET_OUT_OF_RANGE, and CORRUPT_MESSAGE for damaged batches. Raises
        `NotReady` if batches must be checked first, or if the search would wait for the device.
        """
        if not self.serves:
            self.check_leader()
        if end is None:
            end = self.watermark.offset
        try:
            log_slice = self.log.read(
                offset, max_bytes, end_offset=end, min_one=min_one, may_wait=False
            )
            if type(log_slice) is UncheckedSlice:
                raise NotReady(begin_check(log_slice, self.log.leader_epochs))
        except (OSError, CorruptLog) as error:
            raise self._availability.reading_error(error) from error
        return log_slice

    def read_committed(self, offset: int, max_bytes: int, *, min_one: bool) -> LogSlice | None:
        """Return the slice up to the last stable offset, with the aborted transactions in it.

        Raises as `read`.
        """
        log = self.log
        if log.producers.first_unstable_offset < 0 and not log.segments.has_aborted:
            return self.read(offset, max_bytes, min_one=min_one)
        end = self.last_stable_offset
        log_slice = self.read(offset, max_bytes, min_one=min_one, end=end)
        if log_slice is not None:
            try:
                log_slice.aborted = log.aborted_transactions(offset, log_slice, may_wait=False)
            except (NotReady, OSError, CorruptLog) as error:
                log_slice.release()
                if isinstance(error, NotReady):
                    raise
                raise self._availability.reading_error(error) from error
        return log_slice

    def at_time(self, timestamp_ms: int | None) -> Search:
        """Search the first record at or after a time, milliseconds since the epoch.

        `None` searches the first record with the greatest timestamp (KIP-734). The search is a
        generator, which `SlowBatches.find` runs step by step. It returns `None` if there is no
        such record below the high watermark. Its steps raise `KafkaError` as `read`.
        """
        self.check_leader()
        log = self.log
        try:
            record = yield from log.search_time(timestamp_ms)
        except (OSError, CorruptLog) as error:
            raise self._availability.reading_error(error) from error
        return record if record is not None and record.offset < self.watermark.offset else None

    def delete_records(self, before: int, *, force: bool = False) -> int:
        """Advance the log start offset to `before` and return it; it never falls (KIP-107).

        force: delete records that the topic's table does not have yet, too. Raises `KafkaError`:
        OFFSET_OUT_OF_RANGE outside 0 to the high watermark, and POLICY_VIOLATION for a topic with
        `cleanup.policy=compact` alone and, without `force`, for records that are not archived. The
        state of producers stays (KAFKA-7190).
        """
        self.check_leader()
        log = self.log
        # As in Kafka: the oldest records of a compacted topic are its current values, not its past.
        if log.config.cleanup_policy == {"compact"}:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "a topic with cleanup.policy=compact does not support DeleteRecords",
            )
        if not 0 <= before <= self.watermark.offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{before} is not in 0 to {self.watermark.offset}"
            )
        start, floor = log.log_start_offset, archive_floor(log.config, self.index)
        if floor is not None and before > max(floor, start) and not force:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the topic's table has the offsets below {floor} only, not those to {before}",
            )
        log.advance_log_start(before)
        assert before <= log.log_start_offset <= self.watermark.offset
        if log.log_start_offset > start:
            self._changed(self)  # followers learn of it in the fetches that wait
        return log.log_start_offset

    def delete_old_segments(self, now_ms: int, *, at_once: bool = False) -> int:
        """Apply retention to committed segments; return the number of removed segments.

        at_once: whether the files are removed now, not after `file.delete.delay.ms`.

        Raises `NotReady` if a thread must first load an index.
        """
        self._availability.check()
        try:
            end = self.watermark.offset
            kept = self._kept_for_table(end)
            deleted = self.log.delete_old_segments(now_ms, kept, at_once=at_once, may_wait=False)
            self.held_bytes = self.log.expired_bytes(now_ms, end) if kept < end else 0
            return deleted
        except (OSError, CorruptLog) as error:
            raise self._availability.reading_error(error) from error

    def _kept_for_table(self, end: int) -> int:
        """Return the offset from which retention keeps all records; at most `end`."""
        floor = archive_floor(self.log.config, self.index)
        if floor is None:
            return end
        # Segments below the start were deleted by DeleteRecords, with or without an archive.
        return min(end, max(floor, self.log.log_start_offset))

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest epoch at or below `leader_epoch` and its exclusive end offset.

        (-1, -1) if the log has no such epoch (KIP-279).
        """
        self.check_leader()
        return self.log.leader_epochs.end_offset(leader_epoch, self.log.log_end_offset)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica of this leader is not in sync."""
        return len(self.role.isr) <= len(self.role.followers)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas`, or all if there are fewer.

        A topic with fewer replicas than that is not a failure of a broker.
        """
        replicas = 1 + len(self.role.followers)
        return len(self.role.isr) < min(self.log.config.min_insync_replicas, replicas)

    @property
    def replica_lag(self) -> int:
        """The number of records that the most distant follower of this leader lacks."""
        end, start = self.log.log_end_offset, self.log.log_start_offset
        followers = (self.followers.get(node_id) for node_id in self.role.followers)
        ends = (max(follower.end_offset, start) for follower in followers if follower is not None)
        return end - min(ends, default=end)

    def check_min_insync(self, batch: Buffer = b"") -> None:
        """Check `min.insync.replicas` for an append with `acks=all`, of a batch or a marker.

        Raises `KafkaError` (NOT_ENOUGH_REPLICAS).
        """
        if len(self.role.isr) < self.log.config.min_insync_replicas:
            failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
            self.await_rejected(batch, failure)
            raise failure

    def await_rejected(self, batch: Buffer, failure: KafkaError) -> None:
        """Have the producer of a rejected batch repeat it before its next batches.

        These may be on their way, and find enough replicas, space or a coordinator.
        """
        if failure.code.retriable and len(batch) >= HEADER.size:
            header = BatchHeader(*HEADER.unpack_from(batch))
            self.log.producers.await_rejected(
                header.producer_id, header.producer_epoch, header.base_sequence, failure.code
            )

    def _repeats(self, batch: Buffer) -> bool:
        """Return whether the batch is in the log already, by its header alone."""
        if len(batch) < HEADER.size:
            return False
        return self.log.producers.duplicated(HEADER.unpack_from(batch)) is not None

    def retire(self) -> None:
        """Stop serving the partition, because its topic was deleted or the broker is stopping."""
        self._availability.is_retired = True
        self._on_offline()

    def take_offline(self, reason: str) -> None:
        """Stop serving the partition until a restart, which recovers the log from disk."""
        self._availability.take_offline(reason)

    def check_leader(self) -> None:
        """Raise `KafkaError` unless the partition is online, `NotLeaderError` unless it is led."""
        if not self.serves:
            self._availability.check()
            raise NotLeaderError(self.role.leader_id, self.role.leader_epoch)

    def storage_error(self, error: OSError | CorruptLog) -> KafkaError:
        """Return the error for a failure of the log; unless it is transient, go offline."""
        return self._availability.storage_error(error)
