"""Requests and timers of groups, and the queue in which they wait for changes of their group.

A decision about a consumer group depends on the previous one (for example on the partitions that it
freed), which is visible only once it is committed. So at most one change of a consumer group is
being written, and all other requests for the group wait. A change also waits while a record of a
classic group or of an offset is being written. Writes of classic groups and offsets do not wait for
each other.

Waiting requests are data, not suspended coroutines. After a write, a timer that is due at once
resumes them in the order of their arrival.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, ClassVar, NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.records import Decision
from lakelog.coordinator.requests import ClientRequest, log_bug
from lakelog.coordinator.shard import LATER, Effect, Now, Result


class TimerKind(Enum):
    """The event at which a timer fires."""

    JOIN = auto()
    """The join phase of a group ends."""
    SYNC = auto()
    """Members that have not sent SyncGroup are removed."""
    SESSION = auto()
    """A member's session times out."""
    PENDING = auto()
    """A pending member id expires."""
    EXPIRY = auto()
    """The check for expired offsets is due."""
    REVOKE = auto()
    """A member of a consumer group has not revoked partitions in time."""
    REJOIN = auto()
    """A classic member of a consumer group has not rejoined in time."""
    RESYNC = auto()
    """A classic member of a consumer group has not sent SyncGroup in time."""
    QUEUE = auto()
    """Requests that wait for a change of their group may be decided."""


class TimerKey(NamedTuple):
    """One timer of a shard, a group or a member."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Task(Protocol):
    """A decision about a group that may have to wait: a client's request, or work of the shard."""

    @property
    def key(self) -> str:
        """The id of the group."""
        ...

    @property
    def is_exclusive(self) -> bool:
        """Whether the decision may change a consumer group."""
        ...

    @property
    def timer(self) -> TimerKey | None:
        """The timer whose expiry is decided, if any.

        If it is set again while its decision waits, it is no longer due, and the decision is
        dropped.
        """
        ...

    def decide_in(self, shard: Any, now: Now) -> Decision:
        """Return the decision. Raises `KafkaError`."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class GroupRequest(ClientRequest):
    """A client's request about one group; `key` is the group id."""

    is_exclusive: ClassVar[bool] = False
    timer: ClassVar[None] = None

    def decide(self, shard: Any, now: Now) -> Decision:
        """Return the decision; its reply is `LATER` if the request has to wait in the shard."""
        decision: Decision = shard.changes.enter(now, self)
        return decision

    @abstractmethod
    def decide_in(self, shard: Any, now: Now) -> Decision:
        """Return the decision, for a group that nothing blocks. Raises `KafkaError`."""


class ChangeQueue:
    """The requests that wait for changes of their groups, for one shard.

    Attributes:
        shard: decides the requests.
    """

    def __init__(self, deadlines: Deadlines[TimerKey]) -> None:
        self._deadlines = deadlines
        self._changing: set[str] = set()
        self._writing: Counter[str] = Counter()
        self._waiting: dict[str, deque[Task]] = {}
        self.shard: Any = None

    def enter(self, now: Now, task: Task) -> Decision:
        """Decide now, or after earlier changes and requests of the group.

        The returned decision is empty if the request waits. Raises `KafkaError` from the decision.
        """
        group_id = task.key
        # A request never overtakes waiting ones, so that a member's requests keep their order.
        if group_id in self._waiting or self._is_blocked(group_id, exclusive=task.is_exclusive):
            self._waiting.setdefault(group_id, deque()).append(task)
            return Result()
        return self._decide(now, task)

    def resume(self, now: Now, group_id: str) -> list[Decision]:
        """Decide the waiting requests, in order, up to the first that is still blocked.

        It also stops before a timer that follows a decision, and resumes after that has returned.
        """
        queue = self._waiting.pop(group_id, None)
        assert queue is None or queue, "an empty queue would hold back all requests of its group"
        decisions: list[Decision] = []
        while queue and not self._is_blocked(group_id, exclusive=queue[0].is_exclusive):
            # A heartbeat sets the timer of its member only when its decision is committed.
            if decisions and queue[0].timer is not None:
                self._waiting[group_id] = queue
                self._wake(now, group_id)
                return decisions
            first = queue.popleft()
            # A member that sent a heartbeat while its expiry waited has set its timer again, and
            # must not be removed.
            if first.timer is None or first.timer not in self._deadlines.at:
                decisions.append(self.decide_again(now, first))
        if queue:
            self._waiting[group_id] = queue
        return decisions

    def decide_again(self, now: Now, task: Task) -> Decision:
        """Return the decision about a task that has waited, with its request; raises nothing.

        The decision is empty if it has failed: its request has been refused.
        """
        try:
            decision = self._decide(now, task)
        except KafkaError as error:
            if isinstance(task, GroupRequest):
                task.refuse(error.code)
            return Result()
        # The tasks after it would wait forever.
        except Exception:  # noqa: BLE001 - logged; the request is refused
            step = "deciding again"
            if isinstance(task, GroupRequest):
                task.refuse_bug(step, group_id=task.key)
            else:
                log_bug(step, task.key, group_id=task.key)
            return Result()
        if decision.reply is LATER or not isinstance(task, GroupRequest):
            return decision
        return replace(decision, request=task)

    def change(self, group_id: str, decision: Decision) -> Decision:
        """Block the group until `decision`, a change of a consumer group, is committed or fails.

        Return the decision with the effect that ends the block. Without records it returns
        unchanged.
        """
        if not decision.records:
            return decision
        assert group_id not in self._changing, "a group has one change at a time"
        self._changing.add(group_id)
        return replace(decision, effects=(_EndBlock(self, group_id, True, decision.effects),))

    def write(self, group_id: str, decision: Decision) -> Decision:
        """Block changes of the group until `decision` about a classic group or offset is written.

        Return the decision with the effect that ends the block. `enter` does this for its
        decisions.
        """
        # Nothing blocked the group before. A blocked group means that the decision is a change.
        if not decision.records or group_id in self._changing:
            return decision
        self._writing[group_id] += 1
        return replace(decision, effects=(_EndBlock(self, group_id, False, decision.effects),))

    def unloaded(self, code: ErrorCode) -> None:
        """Refuse all waiting requests with `code`."""
        for queue in self._waiting.values():
            for task in queue:
                if isinstance(task, GroupRequest):
                    task.refuse(code)
        self._waiting.clear()

    def end_block(self, now: Now, group_id: str, *, is_change: bool) -> None:
        """Unblock a group after a write: its records are committed, or have failed."""
        if is_change:
            self._changing.remove(group_id)
        else:
            assert self._writing[group_id] > 0, "each block ends once"
            self._writing[group_id] -= 1
            if not self._writing[group_id]:
                del self._writing[group_id]
        self._wake(now, group_id)

    def _decide(self, now: Now, task: Task) -> Decision:
        decision = task.decide_in(self.shard, now)
        return self.write(task.key, decision) if decision.records else decision

    def _is_blocked(self, group_id: str, *, exclusive: bool) -> bool:
        return group_id in self._changing or (exclusive and group_id in self._writing)

    def _wake(self, now: Now, group_id: str) -> None:
        if group_id in self._waiting:
            # By a timer and not at once: another effect of the write that ends here may itself
            # begin the next change, which has to come first.
            self._deadlines.set(TimerKey(TimerKind.QUEUE, group_id), now.tick_ms)


@dataclass(frozen=True, slots=True)
class _EndBlock(Effect):
    """Ends the block of a group when its records are written, before the decision's own effects."""

    queue: ChangeQueue
    group_id: str
    is_change: bool
    effects: tuple[Effect, ...]

    def committed(self, now: Now, result: Decision) -> list[Decision]:
        self.queue.end_block(now, self.group_id, is_change=self.is_change)
        return self._unblocked(effect.committed(now, result) for effect in self.effects)

    def failed(self, now: Now, result: Decision, code: ErrorCode) -> list[Decision]:
        self.queue.end_block(now, self.group_id, is_change=self.is_change)
        return self._unblocked(effect.failed(now, result, code) for effect in self.effects)

    def _unblocked(self, further: Iterable[Iterable[Decision] | None]) -> list[Decision]:
        return [
            self.queue.write(self.group_id, decision)
            for decisions in further
            for decision in decisions or ()
        ]
