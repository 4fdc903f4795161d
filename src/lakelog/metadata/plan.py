"""Plans of the controller: records to write, and their grouping into entries of the metadata log.

Plans that wait together become one entry. Each plan sees the image after the plans before it, and
none after a failed one is affected by it: a failed plan contributes no records. A plan that is
larger than an entry becomes a transaction of entries, as follows (KIP-868).

A transaction is entries of one controller: `BeginTransaction` and records, more records, then the
last records and `EndTransaction`. Its records take effect together with the last entry, so that no
broker ever has a part of the change. If the controller dies in between, the last entry is never
written: the next change, of this controller or the next one, begins with `AbortTransaction` in an
entry of its own, and the client repeats its request.

`BrokerLost` names all topics of which a broker has lost nothing, and one record cannot be divided.
With too many of them, it is written as the new states of the partitions that it changes: these are
records of their own, in as many entries as they need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.features import METADATA_VERSION, TRANSACTIONS_SINCE
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    AbortTransaction,
    BeginTransaction,
    BrokerLost,
    EndTransaction,
    PartitionRecord,
    Record,
    encode_record,
    encode_records,
    metadata_version_of,
)
from lakelog.metadata.store.api import Space

TRANSACTION_BYTES_MAX = 64 << 20
"""Limit for the encoded records of one change in bytes: every broker keeps pending records."""

_BEGIN, _END = BeginTransaction(), EndTransaction()
_MARKER_BYTES = len(encode_record(_BEGIN)) + len(encode_record(_END))


class PlannedEntry(NamedTuple):
    """An entry to append, and the image after it."""

    payload: bytes
    image: MetadataImage


def fits(lines: Sequence[bytes], entry_bytes_max: int) -> bool:
    """Return whether encoded records can be committed together, if need be in several entries."""
    size = sum(map(len, lines))
    if size <= entry_bytes_max:
        return True
    line_max = line_bytes_max(entry_bytes_max)
    return size <= TRANSACTION_BYTES_MAX and max(map(len, lines)) <= line_max


def line_bytes_max(entry_bytes_max: int) -> int:
    """Return the largest size of an encoded record in a change of several entries."""
    return entry_bytes_max - _MARKER_BYTES


def entries_of(
    image: MetadataImage,
    records: Sequence[Record],
    lines: Sequence[bytes],
    changed: MetadataImage,
    entry_bytes_max: int,
) -> list[PlannedEntry]:
    """Return the entries that lead from `image` to `changed`, none for no records.

    A transaction that is pending in `image` is aborted first. lines: the encoded records, which
    `fits` accepts. changed: the image after the records; its `end` does not count.
    """
    if not records:
        return []
    entries = []
    if image.pending is not None:
        image = image.apply_all((abort := AbortTransaction(),), image.end + 1)
        entries.append(PlannedEntry(encode_record(abort), image))
    parts = _parts(records, lines, entry_bytes_max)
    for part in parts[:-1]:
        image = image.apply_all(part, image.end + 1)
        entries.append(PlannedEntry(encode_records(part), image))
    last = b"".join(lines) if len(parts) == 1 else encode_records(parts[-1])
    entries.append(PlannedEntry(last, changed._replace(end=image.end + 1)))
    assert all(len(entry.payload) <= entry_bytes_max for entry in entries)
    return entries


def _parts(
    records: Sequence[Record], lines: Sequence[bytes], entry_bytes_max: int
) -> list[list[Record]]:
    """Return the records in parts that fit an entry each, with markers if there are several."""
    if sum(map(len, lines)) <= entry_bytes_max:
        return [list(records)]
    parts: list[list[Record]] = [[_BEGIN]]
    size = _MARKER_BYTES
    for record, line in zip(records, lines, strict=True):
        if size + len(line) > entry_bytes_max:
            parts.append([])
            size = _MARKER_BYTES
        parts[-1].append(record)
        size += len(line)
    parts[-1].append(_END)
    assert sum(map(len, parts)) == len(records) + 2, "each record is in one part"
    return parts


def taking_effect(
    old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
) -> tuple[Record, ...] | None:
    """Return the records that take effect with an entry; None if nothing visible changes.

    records: of the entry; none for a snapshot.
    """
    if not records or (old.pending is None and new.pending is None):
        return records
    if new.pending is not None or isinstance(records[0], AbortTransaction):
        return None
    assert old.pending is not None and isinstance(records[-1], EndTransaction)
    return (*old.pending, *records[:-1])


T = TypeVar("T")


class Plan(NamedTuple, Generic[T]):
    """Records that are committed together, and the result that is returned after that."""

    records: tuple[Record, ...]
    result: T


Planner = Callable[[MetadataImage], Plan[T]]
"""Decides on an image. It may be called again with a newer one, so it has no effect of its own."""


def divided(
    image: MetadataImage, records: tuple[Record, ...], entry_bytes_max: int
) -> tuple[Record, ...]:
    """Return records with the same effect on `image`, without a `BrokerLost` that is too large.

    If the states are too many as well, or the finalized level has no changes of several entries, a
    loss names fewer topics: replicas of the others count as incomplete, although they are not. So
    no broker is kept from registering.
    """
    if not any(isinstance(record, BrokerLost) for record in records):
        return records
    line_max = line_bytes_max(entry_bytes_max)
    if image.feature_level(METADATA_VERSION) >= TRANSACTIONS_SINCE:
        states = _with_states(image, records, line_max)
        if fits([encode_record(record) for record in states], entry_bytes_max):
            return states
    else:
        others = [record for record in records if not isinstance(record, BrokerLost)]
        line_max = entry_bytes_max - sum(map(_size, others))
    return tuple(
        _cut(record, line_max) if isinstance(record, BrokerLost) else record for record in records
    )


def _with_states(
    image: MetadataImage, records: tuple[Record, ...], line_max: int
) -> tuple[Record, ...]:
    result: list[Record] = []
    for record in records:
        if isinstance(record, BrokerLost) and _size(record) > line_max:
            result += _states_after(image.apply_all(result, image.end + 1), record)
        else:
            result.append(record)
    return tuple(result)


def _states_after(image: MetadataImage, lost: BrokerLost) -> Iterator[PartitionRecord]:
    """Yield the new states of the partitions that a loss changes."""
    changed = image.apply_all([lost], image.end + 1)
    for topic in sorted(changed.topics, key=lambda topic: topic.name):
        former = image.topics_by_id[topic.topic_id]
        if topic is former:
            continue
        for number in range(len(topic.partitions)):
            state = topic.partitions[number]
            if state is not former.partitions[number]:
                yield PartitionRecord(topic.topic_id, *state)


def _cut(lost: BrokerLost, bytes_max: int) -> BrokerLost:
    """Return the loss with as many of its kept topics as fit `bytes_max`."""
    if _size(lost) <= bytes_max or not lost.kept_topics:
        return lost
    first = lost.kept_topics[:1]
    one, two = (_size(lost._replace(kept_topics=first * count)) for count in (1, 2))
    count = (bytes_max - one) // (two - one) + 1
    return lost._replace(kept_topics=lost.kept_topics[: max(count, 0)])


def _size(record: Record) -> int:
    return len(encode_record(record))


class SubmittedPlan(NamedTuple):
    """A plan and the future of its caller.

    from_reserve: whether the plan may use the reserved space.
    """

    plan: Planner[Any]
    future: Any
    from_reserve: bool

    def complete(self, result: object, error: Exception | None = None) -> None:
        """Pass the result or the error to the caller; a cancelled caller gets neither."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


@dataclass(slots=True)
class PlanGroup:
    """Plans that are committed together.

    entries: of the log, none without records; the records take effect with the last one. settled:
    each plan with its result or error, for its caller once all entries are committed.
    """

    records: list[Record]
    entries: list[PlannedEntry]
    completed: list[tuple[SubmittedPlan, object, Exception | None]]

    @property
    def plans(self) -> list[SubmittedPlan]:
        """The plans of the group in the order of submission."""
        return [submitted for submitted, _, _ in self.completed]


class PlanQueue:
    """Plans in the order of submission.

    Args:
        space: limits plans that may not use the reserve.
        entry_bytes_max: the size of an entry of the log.
    """

    def __init__(self, space: Space, entry_bytes_max: int) -> None:
        self._space = space
        self._entry_bytes_max = entry_bytes_max
        self._waiting: deque[SubmittedPlan] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, submitted: SubmittedPlan) -> None:
        """Add a plan at the end."""
        self._waiting.append(submitted)

    def put_back(self, plans: Iterable[SubmittedPlan]) -> None:
        """Return plans of a group, in their order, to the front: they are planned again first."""
        self._waiting.extendleft(reversed(list(plans)))

    def fail(self, error: Exception) -> None:
        """Complete all waiting plans with an error."""
        while self._waiting:
            self._waiting.popleft().complete(None, error)

    def next_group(self, image: MetadataImage) -> PlanGroup:
        """Remove as many plans as fit one entry of the log after `image`, at least one.

        A plan that raises is in the group with its error.
        """
        assert self._waiting, "a group has a plan"
        group = PlanGroup([], [], [])
        lines: list[bytes] = []
        size = 0
        # No plan counts on pending records: the entries of a group abort them.
        planned = image._replace(pending=None)
        while self._waiting:
            submitted = self._waiting[0]
            try:
                plan = submitted.plan(planned)
                if plan.records and not submitted.from_reserve:
                    self._space.check_reserve()
                # Encoded before it is applied: a plan that is too large must not affect the plans
                # after it.
                records, encoded = self._encoded(planned, plan.records)
                changed = planned.apply_all(records, image.end + 1) if encoded else planned
                level = changed.feature_level(METADATA_VERSION)
                # An older broker would stop at such a record.
                assert all(metadata_version_of(record) <= level for record in records)
            except Exception as error:  # noqa: BLE001 - the caller of `submit` gets it
                group.completed.append((self._waiting.popleft(), None, error))
                continue
            size += sum(map(len, encoded))
            if lines and size > self._entry_bytes_max:
                break  # the plan begins the next group, and is called again for it
            group.completed.append((self._waiting.popleft(), plan.result, None))
            planned = changed
            group.records += records
            lines += encoded
        assert group.completed
        group.entries = entries_of(image, group.records, lines, planned, self._entry_bytes_max)
        return group

    def _encoded(
        self, image: MetadataImage, records: tuple[Record, ...]
    ) -> tuple[tuple[Record, ...], list[bytes]]:
        """Return the records of a plan in the form that the log has capacity for, and their
        lines."""
        lines = [encode_record(record) for record in records]
        if sum(map(len, lines)) > self._entry_bytes_max:
            smaller = divided(image, records, self._entry_bytes_max)
            if smaller is not records:
                records, lines = smaller, [encode_record(record) for record in smaller]
            self._check_size(image, lines)
        return records, lines

    def _check_size(self, image: MetadataImage, lines: list[bytes]) -> None:
        is_larger = sum(map(len, lines)) > self._entry_bytes_max
        if is_larger and image.feature_level(METADATA_VERSION) < TRANSACTIONS_SINCE:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "the request changes more metadata than one entry of the log has room for; "
                f"make several requests, or finalize {METADATA_VERSION}={TRANSACTIONS_SINCE}",
            )
        if not fits(lines, self._entry_bytes_max):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the request changes too much of the metadata: {sum(map(len, lines))} B, of which "
                f"{max(map(len, lines))} B cannot be divided; make several requests",
            )
