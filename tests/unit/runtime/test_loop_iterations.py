"""The parts of an iteration of the event loop, and what one of them does in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from lakelog.runtime.api import Clock, Tasks
from lakelog.runtime.loop_iterations import PART_S, LoopIterations


class Loop:
    """Callbacks and a clock, which a piece of work moves."""

    def __init__(self) -> None:
        self.now = 50.0
        self.soon: list[Callable[[], object]] = []
        self.iterations = LoopIterations(cast(Clock, self), cast(Tasks, self))

    def monotonic(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def iteration(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


def test_a_loop_iteration_is_scheduled_once_and_runs_all_parts_in_order() -> None:
    loop = Loop()
    ran: list[str] = []
    for name in "abc":
        loop.iterations.add(lambda name=name: ran.append(name))  # type: ignore[misc]
    loop.iterations.want()
    loop.iterations.want()
    assert (len(loop.soon), loop.iterations.is_due) == (1, True)
    loop.iteration()
    assert (ran, loop.soon, loop.iterations.is_due) == (["a", "b", "c"], [], False)


def test_a_part_that_leaves_work_gets_the_next_loop_iteration() -> None:
    loop = Loop()
    left = [3]

    def part() -> None:
        left[0] -= 1
        if left[0]:
            loop.iterations.want()

    loop.iterations.add(part)
    loop.iterations.want()
    for rest in (2, 1, 0):
        loop.iteration()
        assert left == [rest]
    assert not loop.soon


def test_parts_behind_a_failing_one_run_in_the_next_loop_iteration() -> None:
    loop = Loop()
    failures = [RuntimeError("planted")]
    ran: list[str] = []

    def fail() -> None:
        if failures:
            raise failures.pop()

    loop.iterations.add(fail)
    loop.iterations.add(lambda: ran.append("behind"))
    loop.iterations.want()
    with pytest.raises(RuntimeError, match="planted"):
        loop.iteration()
    assert ran == []
    loop.iteration()
    assert ran == ["behind"]


@pytest.mark.parametrize(
    ("pieces", "takes_s", "expected"),
    [(0, 0.0, 0), (1, 1.0, 1), (9, 0.0, 9), (9, PART_S / 3.5, 4), (9, 1.0, 1)],
)
def test_pieces_run_until_the_part_has_had_its_time(
    pieces: int, takes_s: float, expected: int
) -> None:
    loop = Loop()
    done = [0]

    def piece() -> bool:
        done[0] += 1
        loop.now += takes_s
        return True

    loop.iterations.run_some(pieces, piece)
    assert done == [expected]


def test_a_piece_may_be_the_last() -> None:
    done: list[int] = []

    def piece() -> bool:
        done.append(1)
        return len(done) < 3

    Loop().iterations.run_some(9, piece)
    assert len(done) == 3
