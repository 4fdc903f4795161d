"""The consumer: reads assigned partitions, or shares topics with the members of its group.

```python
with Consumer("localhost:9092", group="billing", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["orders"])
    for records in consumer.batches():
        handle(records)
        consumer.commit()
```
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from lakelog.base.closeable import Closeable
from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed, Membership, commit_offsets, fetch_committed
from lakelog.client.consumer.columns import wanted_columns
from lakelog.client.consumer.fetch import LEVELS
from lakelog.client.consumer.fetcher import Fetcher, FetchLimits, Misplaced, Trouble
from lakelog.client.consumer.group import GroupSession
from lakelog.client.consumer.membership import GROUP_MOVED_ON, GroupMember
from lakelog.client.consumer.positions import (
    ConsumerRecord,
    Position,
    checked_partitions,
    checked_topics,
)
from lakelog.client.errors import ClientError, LogTruncatedError
from lakelog.client.offsets import EARLIEST, LATEST, OffsetAt, TopicPartition, list_offsets
from lakelog.columns.packages import optional
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
_RECORDS_MAX = 500
_ROWS_MAX = 65_536
_TABLE_BYTES = 16 << 20
_Taken = TypeVar("_Taken")


class Consumer(Closeable):
    """A consumer, for one thread at a time. With `subscribe` a second thread sends heartbeats.

    group: the group whose offsets are read and committed; required for `subscribe`.
    auto_offset_reset: the start of a partition without a committed offset: earliest, latest, or
    none (raise an error).
    out_of_range_reset: the same for an offset that is no longer in the log; by default
    auto_offset_reset, as in Java's client. With latest, existing records are skipped.
    isolation_level: read_uncommitted, or read_committed: skip aborted records, and stop before the
    first open transaction.
    auto_commit: commit the records of the last `poll` at the next one and on `close`.
    instance_id: makes the member static: a restart within the session timeout causes no rebalance.
    assignors: names of `lakelog.assignors` in order of preference.

    Raises `ValueError` for invalid settings, and `AddressError`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        auto_offset_reset: str = "latest",
        out_of_range_reset: str | None = None,
        isolation_level: str = "read_uncommitted",
        auto_commit: bool = False,
        instance_id: str | None = None,
        assignors: Sequence[str] = ("range",),
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        limits: FetchLimits | None = None,
        client_id: str = "lakelog",
        timeout_s: float = 30.0,
    ) -> None:
        out_of_range_reset = out_of_range_reset or auto_offset_reset
        for reset in (auto_offset_reset, out_of_range_reset):
            if reset not in RESETS:
                raise ValueError(f"unknown reset {reset!r}; expected one of {list(RESETS)}")
        if isolation_level not in LEVELS:
            raise ValueError(f"unknown isolation_level {isolation_level!r}; not in {list(LEVELS)}")
        if auto_commit and group is None:
            raise ValueError("auto_commit requires a group")
        self._group = group
        self._reset = RESETS[auto_offset_reset]
        self._out_of_range_reset = RESETS[out_of_range_reset]
        self._auto_commit = auto_commit
        self._new_member = partial(
            GroupMember,
            assignors=assignors,
            instance_id=instance_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=max_poll_interval_ms,
        )
        self._new_session = partial(
            GroupSession,
            heartbeat_interval_s=heartbeat_interval_ms / 1000,
            join_timeout_s=max_poll_interval_ms / 1000,
        )
        self._new_cluster = partial(Cluster, bootstrap, client_id=client_id)
        self._cluster = self._new_cluster(timeout_s=timeout_s)
        self._cluster.request_timeout_s = min(self._cluster.request_timeout_s, timeout_s)
        self._read_committed = LEVELS[isolation_level]
        self._fetcher = Fetcher(
            self._cluster, limits or FetchLimits(), read_committed=self._read_committed
        )
        self._session: GroupSession | None = None
        self._join_trouble: Trouble | None = None
        self._on_revoked: Callable[[], None] | None = None
        self._positions: dict[TopicPartition, Position] = {}
        self._uncommitted: set[TopicPartition] = set()

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_revoked: Callable[[], None] | None = None,
        interruptible: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Share these topics with the other members of the group. Joins at the next `poll`.

        on_revoked: is called within `poll` before the member gives up its partitions to rejoin. It
        is the last chance to `commit`; `assignment` and positions are not changed yet.
        interruptible: is entered while `poll` waits for the other members to join. If the handler
        of a signal raises an exception there, `commit` and `close` still work. Raises `ValueError`
        without a group, and the errors of `unsubscribe`.
        """
        if self._group is None:
            raise ValueError("subscribe requires a group")
        names = checked_topics(topics)
        self.unsubscribe()
        self._on_revoked = on_revoked
        member = self._new_member(self._group, names)
        self._session = self._new_session(
            member, self._cluster, self._new_cluster(), interruptible=interruptible
        )

    def unsubscribe(self) -> None:
        """Leave the group and drop all partitions.

        Raises `ClientError` if the commit of `auto_commit` fails.
        """
        if self._session is not None:
            self._commit_if_wanted()
            self._session.close()
            self._session = None
            self._join_trouble = None
        self._set_assignment([])

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a membership. Partitions keep their positions.

        Raises the errors of `unsubscribe`.
        """
        if self._session is not None:
            self.unsubscribe()
        self._set_assignment(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads now."""
        return frozenset(self._positions)

    @property
    def membership(self) -> Membership:
        """The membership in the group, for a transaction that commits offsets (KIP-447)."""
        return Membership() if self._session is None else self._session.membership

    @property
    def trouble(self) -> Trouble | None:
        """The failure that `poll` currently retries, or `None`."""
        return self._join_trouble or self._fetcher.trouble

    def poll(self, timeout_s: float = 1.0, max_records: int = _RECORDS_MAX) -> list[ConsumerRecord]:
        """Return the next records as soon as there are any, or an empty list after `timeout_s`.

        Joins and rejoins the group as necessary; that time does not count. If no coordinator
        answers within `timeout_s`, the call returns and sets `trouble`. If a log was cut below the
        position, reading continues at the cut and logs a warning. Raises FENCED_INSTANCE_ID and
        other errors of the group; with `auto_offset_reset="none"` also OFFSET_OUT_OF_RANGE, and
        `LogTruncatedError` for a cut. timeout_s: seconds.
        """

        def take_next(position: Position, taken: list[ConsumerRecord]) -> bool:
            taken += position.take(max_records - len(taken), MAX_DECOMPRESSED_BYTES)
            return len(taken) >= max_records

        return self._poll(timeout_s, take_next)

    def poll_arrow(
        self,
        timeout_s: float = 1.0,
        *,
        columns: Iterable[str] | None = None,
        max_records: int = _ROWS_MAX,
        max_bytes: int = _TABLE_BYTES,
        null_timestamps: bool = False,
    ) -> pa.Table:
        """Return the next records as a table of Arrow, which is empty after `timeout_s`.

        Positions, commits, rebalances and errors are as with `poll`; the two may alternate. With
        Numba this is many times faster. Columns are named and typed as in Spark's Kafka source:
        key, value, topic, partition, offset, timestamp, timestampType, headers. columns: the names
        of the columns to return, in this order; others are not decoded. max_bytes: the approximate
        size of the table. At least one record is returned if there are any. The rows of a partition
        are in the order of their offsets.

        null_timestamps: return null for a timestamp outside the years 1 to 9999, and its
        milliseconds in the column `rawTimestamp`. Otherwise such a record raises INVALID_TIMESTAMP
        when it is the next one. Raises the errors of `poll`, `ValueError` for an unknown column,
        and `MissingPackageError`, which names the extra to install. timeout_s: seconds.
        """
        chosen = wanted_columns(columns, null_timestamps=null_timestamps)

        def take_next(position: Position, taken: list[pa.RecordBatch]) -> bool:
            count = max_records - sum(rows.num_rows for rows in taken)
            size = max_bytes - sum(rows.nbytes for rows in taken)
            batches = position.take_columns(chosen, count, size, MAX_DECOMPRESSED_BYTES)
            taken += batches
            is_enough: bool = count <= sum(rows.num_rows for rows in batches)
            return is_enough or size <= sum(rows.nbytes for rows in batches)

        return chosen.table(self._poll(timeout_s, take_next))

    def poll_pandas(self, /, timeout_s: float = 1.0, **settings: Any) -> Any:
        """Return the table of `poll_arrow` as a DataFrame of pandas.

        settings: of `poll_arrow`. Raises the errors of `poll_arrow`.
        """
        optional("pandas", "pandas")
        return self.poll_arrow(timeout_s, **settings).to_pandas()

    def poll_polars(self, /, timeout_s: float = 1.0, **settings: Any) -> Any:
        """Return the table of `poll_arrow` as a DataFrame of polars.

        settings: of `poll_arrow`. Raises the errors of `poll_arrow`.
        """
        polars = optional("polars", "polars")
        return polars.from_arrow(self.poll_arrow(timeout_s, **settings))

    def _poll(
        self, timeout_s: float, take_next: Callable[[Position, list[_Taken]], bool]
    ) -> list[_Taken]:
        """Return the records that `take_next` finds; see `poll` and `_take`."""
        self._commit_if_wanted()
        deadline = time.monotonic() + timeout_s
        while True:
            if self._session is not None and self._session.needs_join:
                if not self._rejoin(self._session, timeout_s):
                    return []
                deadline = time.monotonic() + timeout_s
            self._find_positions()
            records = self._take(take_next)
            left = deadline - time.monotonic()
            if records or left <= 0:
                # The next request is in flight while the caller processes these records.
                self._fetcher.ask(self._positions.values())
                return records
            for misplaced in self._fetcher.fetch(self._positions.values(), left):
                if self._positions.get(misplaced.position.key) is misplaced.position:
                    self._replace(misplaced)

    def batches(
        self, max_records: int = _RECORDS_MAX, idle_timeout_s: float | None = None
    ) -> Iterator[list[ConsumerRecord]]:
        """Yield the non-empty results of `poll`; end after `idle_timeout_s` without records.

        Raises the errors of `poll`. idle_timeout_s: seconds.
        """
        last = time.monotonic()
        while True:
            records = self.poll(1.0 if idle_timeout_s is None else idle_timeout_s, max_records)
            if records:
                yield records
                last = time.monotonic()
            elif idle_timeout_s is not None and time.monotonic() - last >= idle_timeout_s:
                return

    def __iter__(self) -> Iterator[ConsumerRecord]:
        for records in self.batches():
            yield from records

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`, which may be `EARLIEST` or `LATEST`.

        Raises `ValueError` for a partition that is not assigned, and for the two constants
        `ClientError`.
        """
        epoch = -1
        if offset in (EARLIEST, LATEST):
            offset_at = self._place_at(partition, offset)
            offset, epoch = offset_at.offset, offset_at.leader_epoch
        self._position(partition).seek(offset, epoch)

    def seek_to_time(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Continue at the first record at or after a time, or at the end; return the offset.

        The time is in milliseconds since the epoch. Raises `ValueError` for a partition that is not
        assigned, and `ClientError`.
        """
        offset_at = self._place_at(partition, timestamp_ms)
        if offset_at.offset < 0:
            offset_at = self._place_at(partition, LATEST)
        self._position(partition).seek(offset_at.offset, offset_at.leader_epoch)
        return offset_at.offset

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` returns.

        Raises `ValueError` for a partition that is not assigned, and the errors of `poll`.
        """
        position = self._position(partition)
        if position.offset is None:
            self._find_positions()
        assert position.offset is not None
        return position.offset

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """Return the committed offsets; partitions without one are left out.

        Raises `ValueError` without a group, `TypeError` for other types, and `ClientError`.
        """
        return fetch_committed(self._cluster, self._need_group(), checked_partitions(partitions))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets`, by default the offsets after the last returned records.

        Raises REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID if the group has
        assigned the partitions to other members meanwhile. No offset was committed then, and those
        members will read the records again. Raises `ValueError` without a group, and `TypeError`
        for partitions of other types.
        """
        group = self._need_group()
        if offsets is None:
            positions = {key: self._positions[key].offset for key in self._uncommitted}
            offsets = {key: offset for key, offset in positions.items() if offset is not None}
        if offsets:
            checked_partitions(offsets)
            rows = {key: self._committed_at(key, offset) for key, offset in offsets.items()}
            if self._session is not None:
                self._session.commit(rows)
            else:
                commit_offsets(self._cluster, group, rows)
        self._uncommitted -= offsets.keys()

    def close(self) -> None:
        """Commit with `auto_commit`, leave the group, and close the connections.

        Raises the errors of `unsubscribe`; the connections are closed all the same.
        """
        try:
            self.unsubscribe()
        finally:
            self._fetcher.close()
            self._cluster.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._auto_commit = self._auto_commit and error is None
        self.close()

    def _take(self, take_next: Callable[[Position, list[_Taken]], bool]) -> list[_Taken]:
        """Return the records that are fetched.

        `take_next` adds the next records of a position, and returns whether there are enough.
        """
        taken: list[_Taken] = []
        for key, position in list(self._positions.items()):
            before = position.offset
            try:
                is_enough = take_next(position, taken)
            except ClientError:
                # The positions of these records have advanced. The next call raises the error.
                if taken:
                    break
                raise
            if position.offset != before:
                self._uncommitted.add(key)
                self._positions[key] = self._positions.pop(key)  # last at the next call
            if is_enough:
                break
        return taken

    def _rejoin(self, session: GroupSession, patience_s: float) -> bool:
        """Join the group; return whether this is a member now."""
        if self._join_trouble is None:
            self._commit_if_wanted()
            if self._on_revoked is not None and self._positions:
                # Before the join, because afterwards the group rejects commits of the old
                # generation.
                self._on_revoked()
        begun = time.monotonic()
        try:
            assigned = session.join(patience_s)
        except ClientError as error:
            if not error.retriable:
                raise
            since_s = begun if self._join_trouble is None else self._join_trouble.since_s
            self._join_trouble = Trouble(error, since_s)
            return False
        self._join_trouble = None
        # Other members may have committed further since: positions come from the group again.
        self._positions.clear()
        self._set_assignment(sorted(assigned))
        return True

    def _set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        keys = checked_partitions(partitions)
        self._positions = {key: self._positions.get(key) or Position(key) for key in keys}
        self._uncommitted &= self._positions.keys()

    def _find_positions(self) -> None:
        """Set missing positions: to committed offsets, or as the reset says."""
        unknown = [key for key, position in self._positions.items() if position.offset is None]
        if not unknown:
            return
        committed: dict[TopicPartition, Committed] = {}
        if self._group is not None:
            committed = fetch_committed(self._cluster, self._group, unknown)
        for key in unknown:
            if key in committed:
                self._positions[key].seek(committed[key].offset, committed[key].leader_epoch)
            else:
                self._reset_position(self._positions[key], self._reset)

    def _reset_position(self, position: Position, reset: int | None) -> None:
        topic, partition = position.key
        if reset is None:
            where = f"{topic}-{partition} at offset {position.offset}"
            hint = "Seek, or set auto_offset_reset to earliest or latest."
            raise ClientError(ErrorCode.OFFSET_OUT_OF_RANGE, where, hint=hint)
        offset_at = self._place_at(position.key, reset)
        position.seek(offset_at.offset, offset_at.leader_epoch)

    def _replace(self, misplaced: Misplaced) -> None:
        """Continue at the cut of a log that was cut, or as the reset says."""
        position, end = misplaced.position, misplaced.end
        if end is None:
            text = (
                f"{position.key[0]}-{position.key[1]}: offset {position.offset} is not in the log"
            )
            self._reset_position(position, self._out_of_range_reset)
            _log.warning(
                "%s; reading continues at %d",
                text,
                position.offset,
                extra=event("offset_out_of_range"),
            )
            return
        assert position.offset is not None
        error = LogTruncatedError(*position.key, position.offset, end.end_offset)
        if self._reset is None:
            raise error
        _log.warning("%s", error.message, extra=event("position_truncated"))
        if end.end_offset < 0:
            self._reset_position(position, self._reset)
        else:
            position.seek(end.end_offset, end.epoch)

    def _place_at(self, partition: TopicPartition, timestamp_ms: int) -> OffsetAt:
        timestamps = {partition: timestamp_ms}
        offsets = list_offsets(self._cluster, timestamps, read_committed=self._read_committed)
        return offsets[partition]

    def _committed_at(self, key: TopicPartition, offset: int) -> Committed:
        """Return an offset to commit, with the leader epoch of the record before it if known."""
        position = self._positions.get(key)
        epoch = position.epoch if position is not None and position.offset == offset else -1
        return Committed(offset, leader_epoch=epoch)

    def _commit_if_wanted(self) -> None:
        if self._auto_commit and self._uncommitted:
            try:
                self.commit()
            except ClientError as error:
                # The new owners read these records again; `poll` rejoins.
                if error.code not in GROUP_MOVED_ON:
                    raise

    def _position(self, partition: TopicPartition) -> Position:
        if partition not in self._positions:
            checked_partitions([partition])
            raise ValueError(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return self._positions[partition]

    def _need_group(self) -> str:
        if self._group is None:
            raise ValueError("commit requires a group")
        return self._group
