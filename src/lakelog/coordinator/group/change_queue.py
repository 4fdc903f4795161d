"""Who may decide about a group while records of it are on their way to the log.

A consumer group's next decision builds on the one before, down to which partition is free, and
nothing of that shows before it is committed. So one change of a consumer group is under way at a
time, and everything else about the group waits its turn; so does a change that begins while a
classic group, or an offset, is being written. Classic groups and offsets do not wait for each
other.

What waits is data; it goes on in the order in which it came, when a deadline of now says so.
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


class ChangeQueue:
    def __init__(self, deadlines: Deadlines[TimerKey]) -> None:
        self._deadlines = deadlines
        self._changing: set[str] = set()
        self._writing: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}

    def enter(
        self, now: Now, group_id: str, decide: Decide, refuse: Refuse, *, exclusive: bool
    ) -> Decision:
        """Decides now, or when the group's turn comes.

        Args:
            refuse: told the code of a `KafkaError`, or of the end of the shard.
            exclusive: whether it may change a consumer group.
        """
        waiting = _Waiting(decide, refuse, exclusive)
        if group_id in self._waiting or self._is_blocked(group_id, exclusive=exclusive):
            self._waiting.setdefault(group_id, deque()).append(waiting)
            return Result()
        return _decide(now, waiting)

    def resume(self, now: Now, group_id: str) -> list[Decision]:
        """Those whose turn it is."""
        queue = self._waiting.pop(group_id, None)
        decisions: list[Decision] = []
        while queue and not self._is_blocked(group_id, exclusive=queue[0].exclusive):
            decisions.append(_decide(now, queue.popleft()))
        if queue:
            self._waiting[group_id] = queue
        return decisions

    def change(self, group_id: str, decision: Decision) -> Decision:
        """A decision that changes a consumer group, or makes one or ends one."""
        if not decision.records:
            return decision
        assert group_id not in self._changing
        self._changing.add(group_id)
        return self._then(decision, group_id, lambda: self._changing.remove(group_id))

    def write(self, group_id: str, decision: Decision) -> Decision:
        """A decision that writes a classic group or an offset."""
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
        for queue in self._waiting.values():
            for waiting in queue:
                waiting.refuse(code)
        self._waiting.clear()

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
            self._deadlines.set(TimerKey(TimerKind.QUEUE, group_id), now.tick_ms)


def _decide(now: Now, waiting: _Waiting) -> Decision:
    try:
        return waiting.decide(now)
    except KafkaError as error:
        waiting.refuse(error.code)
        return Result()
