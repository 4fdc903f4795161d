from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from counted_work import work_run
from lakelog.replica.purgatory import Parked, Purgatory
from lakelog.runtime.loop_iterations import LoopIterations


class FakeLoop:
    """Clock and timers that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def iteration(self) -> None:
        """Run the callbacks that are scheduled so far."""
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[..., object]) -> Any:
        entry = (self.now + delay_s, callback)
        self.timers.append(entry)
        loop = self

        class Handle:
            def cancel(self) -> None:
                if entry in loop.timers:
                    loop.timers.remove(entry)

        return Handle()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for entry in sorted(self.timers, key=lambda timer: timer[0]):
            if entry[0] <= self.now and entry in self.timers:
                self.timers.remove(entry)
                entry[1]()


class Fetch:
    def __init__(self) -> None:
        self.ready = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        if self.ready:
            self.events.append("completed")
        return self.ready

    def expire(self) -> None:
        self.events.append("expired")

    def fail(self, error: Exception) -> None:
        self.events.append(f"failed: {error}")


def make() -> tuple[FakeLoop, Purgatory]:
    loop = FakeLoop()
    return loop, Purgatory(loop, loop, LoopIterations(loop, loop))  # type: ignore[arg-type]


def test_a_wait_is_tried_when_one_of_its_keys_is_touched() -> None:
    _, purgatory = make()
    fetch = Fetch()
    purgatory.park(fetch, ["a", "b"], 101.0)
    purgatory.check("a")
    assert fetch.events == []
    fetch.ready = True
    purgatory.check("c")
    assert fetch.events == []
    purgatory.check("b")
    assert fetch.events == ["completed"]
    assert len(purgatory) == 0


def test_a_wait_expires_once_at_its_deadline() -> None:
    loop, purgatory = make()
    early, late = Fetch(), Fetch()
    purgatory.park(late, ["a"], 102.0)
    purgatory.park(early, ["a"], 101.0)
    loop.advance(1.0)
    assert (early.events, late.events) == (["expired"], [])
    loop.advance(1.0)
    late.ready = True
    purgatory.check("a")
    assert late.events == ["expired"]


def test_a_completed_wait_does_not_expire() -> None:
    loop, purgatory = make()
    fetch = Fetch()
    fetch.ready = True
    purgatory.park(fetch, ["a"], 101.0)
    purgatory.check("a")
    loop.advance(5.0)
    assert fetch.events == ["completed"]


def test_a_cancelled_wait_is_forgotten() -> None:
    loop, purgatory = make()
    fetch = Fetch()
    parked = purgatory.park(fetch, ["a"], 101.0)
    purgatory.cancel(parked)
    purgatory.cancel(parked)
    fetch.ready = True
    purgatory.check("a")
    loop.advance(5.0)
    assert fetch.events == []


def test_memory_does_not_grow_with_waits_that_ended() -> None:
    _, purgatory = make()
    for _ in range(5_000):
        purgatory.cancel(purgatory.park(Fetch(), ["a"], 1_000.0))
    assert len(purgatory) == 0
    assert len(purgatory._deadlines) < 200
    assert not purgatory._by_key


def test_a_wait_may_park_again_while_it_is_tried() -> None:
    loop, purgatory = make()
    second = Fetch()

    class Again(Fetch):
        def try_complete(self) -> bool:
            purgatory.park(second, ["a"], 103.0)
            return True

    purgatory.park(Again(), ["a"], 101.0)
    purgatory.check("a")
    assert len(purgatory) == 1
    loop.advance(10.0)
    assert second.events == ["expired"]


def test_a_key_may_be_touched_again_while_a_wait_on_it_is_answered() -> None:
    _, purgatory = make()

    class Touches(Fetch):
        def try_complete(self) -> bool:
            self.events.append("completed")
            purgatory.check("a")
            return True

    touches, other = Touches(), Fetch()
    other.ready = True
    purgatory.park(touches, ["a"], 101.0)
    purgatory.park(other, ["a"], 101.0)
    purgatory.check("a")
    assert (touches.events, other.events) == (["completed"], ["completed"])
    assert len(purgatory) == 0


def test_an_operation_to_check_soon_is_tried_once_in_the_next_loop_iteration() -> None:
    loop, purgatory = make()
    fetch = Fetch()
    fetch.ready = True
    purgatory.park(fetch, ["a", "b"], 101.0)
    for key in ("a", "b", "a", "c"):
        purgatory.check_soon(key)
    assert fetch.events == []
    loop.iteration()
    assert fetch.events == ["completed"]


def test_a_dropped_operation_is_not_tried() -> None:
    loop, purgatory = make()
    fetch = Fetch()
    fetch.ready = True
    parked = purgatory.park(fetch, ["a"], 101.0)
    purgatory.check_soon("a")
    purgatory.cancel(parked)
    loop.iteration()
    assert fetch.events == []


def test_one_loop_iteration_tries_a_bounded_number_of_waits() -> None:
    loop, purgatory = make()
    fetches = [Fetch() for _ in range(300)]
    for fetch in fetches:
        fetch.ready = True
        purgatory.park(fetch, ["a"], 101.0)
    purgatory.check_soon("a")
    for tried in (128, 256, 300):
        loop.iteration()
        assert sum(bool(fetch.events) for fetch in fetches) == tried
    assert not loop.soon


def test_one_loop_iteration_expires_a_bounded_number_of_waits() -> None:
    """A timer that is due at once rings in the next loop iteration."""
    loop, purgatory = make()
    fetches = [Fetch() for _ in range(300)]
    for fetch in fetches:
        purgatory.park(fetch, ["a"], 101.0)
    loop.advance(1.0)
    for expired in (128, 256, 300):
        assert sum(bool(fetch.events) for fetch in fetches) == expired
        assert [due for due, _ in loop.timers] == [101.0] * (expired < 300)
        loop.advance(0.0)
    assert not len(purgatory)


def test_a_timer_stops_at_the_first_wait_that_is_not_due(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, purgatory = make()
    due, late = Fetch(), Fetch()
    purgatory.park(due, ["a"], 101.0)
    purgatory.park(late, ["a"], 102.0)
    pop_due, looks = purgatory._pop_due, []

    def counted(now: float) -> Parked | None:
        looks.append(now)
        return pop_due(now)

    monkeypatch.setattr(purgatory, "_pop_due", counted)
    loop.advance(1.0)
    assert (due.events, late.events) == (["expired"], [])
    assert len(looks) == 2


@pytest.mark.parametrize("are_due", [False, True])
def test_waits_that_take_long_leave_turns_to_others(are_due: bool) -> None:
    loop, purgatory = make()
    ended: list[int] = []

    class Long(Fetch):
        def expire(self) -> None:
            loop.now += 0.04
            ended.append(1)

        def try_complete(self) -> bool:
            self.expire()
            return True

    for _ in range(3):
        purgatory.park(Long(), ["a"], 101.0)
    if not are_due:
        purgatory.check_soon("a")
    for count in (1, 2, 3):
        if are_due:
            loop.advance(1.0)
        else:
            loop.iteration()
        assert len(ended) == count
    assert len(purgatory) == 0


def test_a_wait_that_fails_keeps_no_other_from_being_tried() -> None:
    loop, purgatory = make()

    class Fails(Fetch):
        def try_complete(self) -> bool:
            raise MemoryError("planted")

        def expire(self) -> None:
            raise RuntimeError("again")

    fetches = [Fetch() for _ in range(300)]
    failing, late = Fails(), Fails()
    purgatory.park(failing, ["a"], 101.0)
    purgatory.park(late, ["b"], 101.0)
    for fetch in fetches:
        fetch.ready = True
        purgatory.park(fetch, ["a"], 101.0)
    purgatory.check_soon("a")
    while loop.soon:
        loop.iteration()
    assert all(fetch.events == ["completed"] for fetch in fetches)
    assert failing.events == ["failed: planted"]
    other = Fetch()
    purgatory.park(other, ["b"], 101.0)
    loop.advance(10.0)
    assert (late.events, other.events) == (["failed: again"], ["expired"])
    assert not len(purgatory)


def waits_for(purgatory: Purgatory, offsets: range, reached: list[int]) -> list[Fetch]:
    """Park a wait for each offset, which is answered when `reached` has come to it."""

    class Commit(Fetch):
        def __init__(self, offset: int) -> None:
            super().__init__()
            self.offset = offset

        def try_complete(self) -> bool:
            self.ready = self.offset <= reached[0]
            return super().try_complete()

    waits = {offset: Commit(offset) for offset in offsets}
    for offset in sorted(offsets, key=lambda offset: offset % 7):
        purgatory.park_by_offset(waits[offset], "a", offset, 110.0)
    return [waits[offset] for offset in offsets]


@pytest.mark.parametrize("is_soon", [False, True])
def test_an_event_answers_the_waits_for_the_reached_offsets(is_soon: bool) -> None:
    loop, purgatory = make()
    reached = [149]
    waits = waits_for(purgatory, range(300), reached)
    if is_soon:
        purgatory.check_soon("a")
        loop.iteration()
        assert sum(bool(wait.events) for wait in waits) == 128, "a turn is bounded"
        while loop.soon:
            loop.iteration()
    else:
        purgatory.check("a")
    assert [wait.events for wait in waits] == [["completed"]] * 150 + [[]] * 150
    loop.advance(10.0)
    while len(purgatory):
        loop.advance(0.0)
    assert [wait.events for wait in waits[150:]] == [["expired"]] * 150
    purgatory.check("a")


def test_cancelled_waits_for_offsets_leave_nothing_behind() -> None:
    _, purgatory = make()
    first = purgatory.park_by_offset(Fetch(), "a", 0, 110.0)
    for offset in range(1, 1000):
        purgatory.cancel(purgatory.park_by_offset(Fetch(), "a", offset, 110.0))
    assert first.queue is not None
    assert len(first.queue._heap) < 100
    assert len(purgatory) == 1


def test_waits_that_an_event_does_not_answer_cost_nothing() -> None:
    """An advancing high watermark, beside many acknowledgements of later records."""
    costs = []
    for count in (20, 1000):
        _, purgatory = make()
        reached = [-1]
        waits_for(purgatory, range(count), reached)
        purgatory.check("a")
        reached[0] = 9
        costs.append(work_run(lambda purgatory=purgatory: purgatory.check("a"))["opcode"])  # type: ignore[misc]
    assert costs[0] == costs[1]
