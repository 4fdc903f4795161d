"""Serializes the changes of one group while its records are being written.

A decision about a consumer group depends on the previous one (for example on the partitions that it
freed), which is visible only once it is committed. So at most one change of a consumer group is
being written, and all other requests for the group wait. A change also waits while a record of a
classic group or of an offset is being written. Writes of classic groups and offsets do not wait for
each other.

Waiting requests are data, not suspended coroutines. After a write, a timer that is due at once
resumes them in the order of their arrival.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.coordinator.shard import Now, Result

Decide = Callable[[Now], Decision]
Refuse = Callable[[ErrorCode], None]


class _Waiting(NamedTuple):
    decide: Decide
    refuse: Refuse
    exclusive: bool
    timer: TimerKey | None


class ChangeQueue:
    """The requests that wait for changes of their groups, for one shard."""

    def __init__(self, deadlines: Deadlines[TimerKey]) -> None:
        self._deadlines = deadlines
        self._changing: set[str] = set()
        self._writing: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}

    def enter(
        self,
        now: Now,
        group_id: str,
        decide: Decide,
        refuse: Refuse,
        *,
        exclusive: bool,
        timer: TimerKey | None = None,
    ) -> Decision:
        """Decide now, or after earlier changes and requests of the group.

        Raises nothing: `refuse` gets the code of a `KafkaError`. The returned decision is empty if
        the request waits or is refused.

        Args:
            refuse: called with the code of a `KafkaError`, or when the shard is unloaded.
            exclusive: whether the decision may change a consumer group.
            timer: the timer whose expiry is decided, if any. If it is set again while its
                decision waits, it is no longer due, and the decision is dropped.
        """
        waiting = _Waiting(decide, refuse, exclusive, timer)
        # A request never overtakes waiting ones, so that a member's requests keep their order.
        if group_id in self._waiting or self._is_blocked(group_id, exclusive=exclusive):
            self._waiting.setdefault(group_id, deque()).append(waiting)
            return Result()
        return self._decide(now, group_id, waiting)

    def resume(self, now: Now, group_id: str) -> list[Decision]:
        """Decide the waiting requests, in order, up to the first that is still blocked.

        It also stops before a timer that follows a decision, and resumes after that has returned.
        """
        queue = self._waiting.pop(group_id, None)
        decisions: list[Decision] = []
        while queue and not self._is_blocked(group_id, exclusive=queue[0].exclusive):
            # A heartbeat sets the timer of its member only when its decision is committed.
            if decisions and queue[0].timer is not None:
                self._waiting[group_id] = queue
                self._wake(now, group_id)
                return decisions
            first = queue.popleft()
            # A member that sent a heartbeat while its expiry waited has set its timer again, and
            # must not be removed.
            if first.timer is None or first.timer not in self._deadlines:
                decisions.append(self._decide(now, group_id, first))
        if queue:
            self._waiting[group_id] = queue
        return decisions

    def change(self, group_id: str, decision: Decision) -> Decision:
        """Block the group until `decision`, a change of a consumer group, is committed or fails.

        Return the decision with callbacks that end the block. Without records it returns unchanged.
        """
        if not decision.records:
            return decision
        assert group_id not in self._changing
        self._changing.add(group_id)
        return self._then(decision, group_id, lambda: self._changing.remove(group_id))

    def write(self, group_id: str, decision: Decision) -> Decision:
        """Block changes of the group until `decision` about a classic group or offset is written.

        Return the decision with callbacks that end the block. `enter` does this for its decisions
        and for the decisions that follow them.
        """
        if not decision.records:
            return decision
        self._writing[group_id] += 1

        def done() -> None:
            assert self._writing[group_id] > 0
            self._writing[group_id] -= 1
            if not self._writing[group_id]:
                del self._writing[group_id]

        return self._then(decision, group_id, done)

    def unloaded(self, code: ErrorCode) -> None:
        """Refuse all waiting requests with `code`."""
        for queue in self._waiting.values():
            for waiting in queue:
                waiting.refuse(code)
        self._waiting.clear()

    def _decide(self, now: Now, group_id: str, waiting: _Waiting) -> Decision:
        try:
            decision = waiting.decide(now)
        except KafkaError as error:
            waiting.refuse(error.code)
            return Result()
        # Nothing blocked the group before. A blocked group means that the decision is a change.
        if not decision.records or group_id in self._changing:
            return decision
        return self.write(group_id, decision)

    def _is_blocked(self, group_id: str, *, exclusive: bool) -> bool:
        return group_id in self._changing or (exclusive and group_id in self._writing)

    def _then(self, decision: Decision, group_id: str, done: Callable[[], None]) -> Decision:
        def committed(now: Now) -> Decision | None:
            done()
            self._wake(now, group_id)
            follow = decision.committed(now) if decision.committed is not None else None
            return follow and self.write(group_id, follow)

        def failed(now: Now, code: ErrorCode) -> Decision | None:
            done()
            self._wake(now, group_id)
            follow = decision.failed(now, code) if decision.failed is not None else None
            return follow and self.write(group_id, follow)

        return replace(decision, committed=committed, failed=failed)

    def _wake(self, now: Now, group_id: str) -> None:
        if group_id in self._waiting:
            # By a timer and not at once: the callback of the write that ends here may itself begin
            # the next change, which has to come first.
            self._deadlines.set(TimerKey(TimerKind.QUEUE, group_id), now.tick_ms)
