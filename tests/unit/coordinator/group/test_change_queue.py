from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from consumer_members import Consumer, settle, snapshot
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.group.change_queue import ChangeQueue, GroupRequest, TimerKey, TimerKind
from lakelog.coordinator.group.config import ConsumerConfig
from lakelog.coordinator.group.consumer.heartbeat import ConsumerHeartbeats
from lakelog.coordinator.group.records import Decision, OffsetCommitKey, OffsetRecord
from lakelog.coordinator.shard import LATER, Effect, Now, Result

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@in_virtual_time(consumer=AT_ONCE)
async def test_concurrent_joins_are_decided_one_after_the_other(setup: Setup) -> None:
    setup.log.delay_s = lambda: 0.5
    members = [Consumer(setup, f"m{i}") for i in range(4)]
    for response, member in zip(
        await asyncio.gather(*(each.ask() for each in members)), members, strict=True
    ):
        assert response.error_code == 0
        member.take(response)
    assert sorted(each.epoch for each in members) == [1, 2, 3, 4]
    await settle(*members)
    assert [len(each.of()) for each in members] == [2, 2, 2, 2]


@in_virtual_time(consumer=AT_ONCE)
async def test_a_join_that_cannot_be_written_did_not_happen(setup: Setup) -> None:
    setup.log.fate = lambda: "refused"
    one = Consumer(setup, "one")
    assert (await one.beat()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert snapshot(setup) == {}
    setup.log.fate = lambda: "ok"
    assert (await one.beat()).error_code == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_waiting_requests_are_answered_when_the_coordinator_closes(setup: Setup) -> None:
    setup.log.delay_s = lambda: 5.0
    one, two = Consumer(setup, "one"), Consumer(setup, "two")
    asked = [one.ask(), two.ask()]
    setup.coordinator.close()
    for reply in asked:
        assert (await reply).error_code == ErrorCode.NOT_COORDINATOR


def test_a_bug_in_a_decision_that_has_waited_leaves_no_request_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decide = ConsumerHeartbeats.heartbeat

    def fail_for_two(self: Any, now: Now, asked: Any) -> Decision:
        if asked.request.member_id == "two":
            raise RuntimeError("planted")
        return decide(self, now, asked)

    @in_virtual_time(consumer=AT_ONCE)
    async def scenario(setup: Setup) -> None:
        setup.log.delay_s = lambda: 0.5
        members = [Consumer(setup, name) for name in ("one", "two", "three", "four")]
        replies = asyncio.gather(*(each.ask() for each in members))
        codes = [reply.error_code for reply in await asyncio.wait_for(replies, 60)]
        assert codes == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0]

    monkeypatch.setattr(ConsumerHeartbeats, "heartbeat", fail_for_two)
    scenario()
    bugs = [record for record in caplog.records if record.exc_info is not None]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"]
    assert bugs[0].__dict__["fields"] == {"group_id": "readers"}


class Work(GroupRequest):
    """A request, or a timer, with the function that decides it."""

    def __init__(
        self,
        queue: Queue,
        decide: Callable[[], Decision],
        *,
        changes: bool,
        timer: TimerKey | None = None,
    ) -> None:
        super().__init__(future=None, key="g")
        self._queue = queue
        self._decide = decide
        self.is_exclusive = changes  # type: ignore[misc]
        self.timer = timer  # type: ignore[assignment, misc]

    def decide_in(self, shard: object, now: Now) -> Decision:
        return self._decide()

    def refuse(self, code: ErrorCode) -> None:
        self._queue.refused.append(code)


class Queue:
    """A queue with the names of the decisions made, each of which writes one record."""

    def __init__(self) -> None:
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.queue = ChangeQueue(self.deadlines)
        self.made: list[str] = []
        self.refused: list[ErrorCode] = []

    def enter(
        self, name: str, *, changes: bool, timer: TimerKey | None = None, reply: object = LATER
    ) -> Decision:
        def decide() -> Decision:
            self.made.append(name)
            decision: Decision = Result([OffsetRecord(OffsetCommitKey(), None)], reply)
            return self.queue.change("g", decision) if changes else decision

        return self.queue.enter(_NOW, Work(self, decide, changes=changes, timer=timer))

    def resume(self) -> list[Decision]:
        assert self.deadlines.pop_due(_NOW.tick_ms) == TimerKey(TimerKind.QUEUE, "g")
        return self.queue.resume(_NOW, "g")


_NOW = Now(0, 0)


def _commit(decision: Decision) -> list[Decision]:
    """Run the effects of a committed decision; return the further decisions."""
    further: list[Decision] = []
    for effect in decision.effects:
        further += effect.committed(_NOW, decision) or ()
    return further


def test_a_change_waits_for_each_record_that_is_being_written() -> None:
    queue = Queue()
    offsets = [queue.enter("offset 1", changes=False), queue.enter("offset 2", changes=False)]
    queue.enter("change", changes=True)
    _commit(offsets[0])
    assert queue.resume() == []
    _commit(offsets[1])
    (change,) = queue.resume()
    assert queue.made == ["offset 1", "offset 2", "change"]
    assert change.records


def test_requests_behind_a_waiting_change_keep_their_order() -> None:
    """Otherwise commits of offsets could keep a member from joining for ever."""
    queue = Queue()
    first = queue.enter("offset 1", changes=False)
    queue.enter("change", changes=True)
    queue.enter("offset 2", changes=False)
    assert queue.made == ["offset 1"]
    _commit(first)
    (change,) = queue.resume()
    _commit(change)
    queue.resume()
    assert queue.made == ["offset 1", "change", "offset 2"]


def test_a_failed_change_blocks_nothing() -> None:
    queue = Queue()
    change = queue.enter("change", changes=True)
    queue.enter("next", changes=True)
    for effect in change.effects:
        effect.failed(_NOW, change, ErrorCode.NOT_COORDINATOR)
    queue.resume()
    assert queue.made == ["change", "next"]


@pytest.mark.parametrize("renewed", [False, True])
def test_a_timer_that_is_set_again_while_it_waits_is_not_due(renewed: bool) -> None:
    """A heartbeat that comes before the decision keeps its member in the group."""
    queue, timer = Queue(), TimerKey(TimerKind.SESSION, "g", "m")
    change = queue.enter("change", changes=True)
    queue.enter("expire", changes=True, timer=timer)
    if renewed:
        queue.deadlines.set(timer, 10_000)
    _commit(change)
    queue.resume()
    assert queue.made == ["change"] + ["expire"] * (not renewed)


@dataclass(frozen=True)
class Renew(Effect):
    """Sets a timer again."""

    queue: Queue
    timer: TimerKey

    def committed(self, now: Now, result: Decision) -> None:
        self.queue.deadlines.set(self.timer, 10_000)


def test_a_heartbeat_that_waits_before_the_expiry_of_its_member_keeps_it() -> None:
    """Otherwise another member gets its partitions while it still reads them."""
    queue, timer = Queue(), TimerKey(TimerKind.SESSION, "g", "m")
    change = queue.enter("change", changes=True)
    heartbeat: Decision = Result(effects=(Renew(queue, timer),))
    queue.queue.enter(_NOW, Work(queue, lambda: heartbeat, changes=True))
    queue.enter("expire", changes=True, timer=timer)
    _commit(change)
    (decided,) = queue.resume()
    _commit(decided)
    assert queue.resume() == []
    assert queue.made == ["change"]


def test_a_request_that_has_waited_is_in_its_decision() -> None:
    queue = Queue()
    first = queue.enter("first", changes=True)
    assert queue.enter("next", changes=True, reply="yes") == Result(), "it waits"
    _commit(first)
    (decided,) = queue.resume()
    assert decided.request is not None
    assert decided.reply == "yes"


def test_a_decision_that_follows_a_write_blocks_changes_too() -> None:
    queue = Queue()
    record = OffsetRecord(OffsetCommitKey(), None)
    first: Decision = Result([record], effects=(Follow(Result([record])),))
    (further,) = _commit(queue.queue.write("g", first))
    queue.enter("change", changes=True)
    assert queue.made == [], "the further decision is being written"
    _commit(further)
    queue.resume()
    assert queue.made == ["change"]


@dataclass(frozen=True)
class Follow(Effect):
    """Returns a further decision."""

    further: Decision

    def committed(self, now: Now, result: Decision) -> tuple[Decision, ...]:
        return (self.further,)


def test_waiting_requests_are_refused_when_the_shard_is_unloaded() -> None:
    queue = Queue()
    queue.enter("change", changes=True)
    queue.enter("next", changes=True)
    queue.queue.unloaded(ErrorCode.NOT_COORDINATOR)
    assert queue.refused == [ErrorCode.NOT_COORDINATOR]
    assert queue.made == ["change"]
