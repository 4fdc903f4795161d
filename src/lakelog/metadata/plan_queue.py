"""Submitted plans, and their grouping into entries of the metadata log.

Plans that wait together become one entry. Each plan sees the image after the plans before it, and
none after a failed one is affected by it: a failed plan contributes no records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Planner
from lakelog.metadata.records import Record, encode_records
from lakelog.metadata.space import Space
from lakelog.metadata.store.api import BATCH_BYTES_MAX


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
    """Plans that become one entry of the log.

    image: after the entry. payload: the encoded records. settled: each plan with its result or
    error, for its caller once the entry is committed.
    """

    image: MetadataImage
    records: list[Record]
    payload: bytearray
    settled: list[tuple[SubmittedPlan, object, Exception | None]]

    @property
    def plans(self) -> list[SubmittedPlan]:
        """The plans of the group in the order of submission."""
        return [submitted for submitted, _, _ in self.settled]


class PlanQueue:
    """Plans in the order of submission. `space` limits plans that may not use the reserve."""

    def __init__(self, space: Space) -> None:
        self._space = space
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
        group = PlanGroup(image, [], bytearray(), [])
        end = image.end + 1
        while self._waiting:
            submitted = self._waiting[0]
            try:
                plan = submitted.plan(group.image)
                if plan.records and not submitted.from_reserve:
                    self._space.check_reserve()
                # Encoded before it is applied: a plan that is too large must not affect the plans
                # after it.
                payload = encode_records(plan.records)
                if len(payload) > BATCH_BYTES_MAX:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION,
                        "the request has too many changes for one entry of the metadata log",
                    )
                changed = group.image.apply_all(plan.records, end) if plan.records else group.image
            except Exception as error:  # noqa: BLE001 - the caller of `submit` gets it
                group.settled.append((self._waiting.popleft(), None, error))
                continue
            if len(group.payload) + len(payload) > BATCH_BYTES_MAX:
                break  # the plan begins the next group, and is called again for it
            group.settled.append((self._waiting.popleft(), plan.result, None))
            group.image = changed
            group.records += plan.records
            group.payload += payload
        assert group.settled and len(group.payload) <= BATCH_BYTES_MAX
        return group
