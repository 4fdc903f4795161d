"""Submitted plans, and their grouping into entries of the metadata log.

Plans that wait together become one entry. Each plan sees the image after the plans before it, and
none after a failed one is affected by it: a failed plan contributes no records. A plan that is
larger than an entry becomes several, which take effect together (`transactions.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.features import METADATA_VERSION, TRANSACTIONS_SINCE
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.losses import divided
from lakelog.metadata.plan import Planner
from lakelog.metadata.records import Record, encode_record, metadata_version_of
from lakelog.metadata.space import Space
from lakelog.metadata.transactions import PlannedEntry, entries_of, fits


class SubmittedPlan(NamedTuple):
    """A plan and the future of its caller.

    from_reserve: whether the plan may use the reserved space.
    """

    plan: Planner[Any]
    future: Any
    from_reserve: bool

    def settle(self, result: object, error: Exception | None = None) -> None:
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
    settled: list[tuple[SubmittedPlan, object, Exception | None]]

    @property
    def plans(self) -> list[SubmittedPlan]:
        """The plans of the group in the order of submission."""
        return [submitted for submitted, _, _ in self.settled]


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
        """Settle all waiting plans with an error."""
        while self._waiting:
            self._waiting.popleft().settle(None, error)

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
                group.settled.append((self._waiting.popleft(), None, error))
                continue
            size += sum(map(len, encoded))
            if lines and size > self._entry_bytes_max:
                break  # the plan begins the next group, and is called again for it
            group.settled.append((self._waiting.popleft(), plan.result, None))
            planned = changed
            group.records += records
            lines += encoded
        assert group.settled
        group.entries = entries_of(image, group.records, lines, planned, self._entry_bytes_max)
        return group

    def _encoded(
        self, image: MetadataImage, records: tuple[Record, ...]
    ) -> tuple[tuple[Record, ...], list[bytes]]:
        """Return the records of a plan in the form that the log has room for, and their lines."""
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
