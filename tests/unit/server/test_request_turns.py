"""What is begun in one turn of the loop, and who has the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from lakelog.server.request_turns import COSTLY_MAX, SHARE, RequestTurns
from storage_kit import ManualClock


class World:
    """Callbacks in turns, as a loop runs them: what is scheduled in one runs in the next."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._soon: deque[Callable[[], object]] = deque()
        self.turns = RequestTurns(self.clock, self)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[[], object], *_: Any) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        for _ in range(len(self._soon)):
            self._soon.popleft()()


class Asking:
    """Wants `count` requests begun; keeps in which turn of the world each was."""

    def __init__(self, world: World, count: int, *, costly: bool = True) -> None:
        self._world = world
        self._left = count
        self._costly = costly
        self._begun_any = False
        self.begun = 0

    def go_on(self) -> None:
        turns = self._world.turns
        share = turns.share
        while self._left:
            if share <= 0 or (self._costly and not turns.may_begin()):
                turns.wait(self.go_on, is_first=not self._begun_any)
                return
            self._begun_any = True
            self._left -= 1
            self.begun += 1
            share = 0 if self._costly else share - 1


def _flood(world: World, count: int, *, costly: bool) -> list[Asking]:
    flood = [Asking(world, 50, costly=costly) for _ in range(count)]
    for one in flood:
        one.go_on()
    return flood


def _begun(flood: list[Asking]) -> int:
    return sum(one.begun for one in flood)


def test_a_few_costly_requests_begin_in_one_turn_however_many_are_there() -> None:
    world = World()
    flood = _flood(world, 500, costly=True)
    assert _begun(flood) == COSTLY_MAX
    for turn in range(2, 2_000):
        world.turn()
        assert _begun(flood) == turn * COSTLY_MAX


def test_everybody_has_a_turn_soon_and_as_many_in_the_end() -> None:
    world = World()
    flood = _flood(world, 40, costly=True)
    for _ in range(40 // (COSTLY_MAX - 1)):
        world.turn()
    assert min(one.begun for one in flood) == 1
    assert max(one.begun for one in flood) <= 3
    while world.turns.waiting:
        world.turn()
    assert [one.begun for one in flood] == [50] * 40


def test_who_asks_for_the_first_time_goes_before_those_who_ask_on_and_on() -> None:
    world = World()
    flood = _flood(world, 500, costly=True)
    while world.turns.waiting and min(one.begun for one in flood) == 0:
        world.turn()
    good = Asking(world, 1)
    good.go_on()
    world.turn()
    assert good.begun == 1


def test_those_who_ask_on_are_not_kept_waiting_by_newcomers() -> None:
    world = World()
    (old,) = _flood(world, 1, costly=True)
    for _ in range(10):
        for _ in range(COSTLY_MAX * 2):
            Asking(world, 1).go_on()
        world.turn()
    assert old.begun > 5


def test_newcomers_are_not_kept_out_by_those_who_ask_on_while_turns_are_long() -> None:
    world = World()
    (old,) = _flood(world, 1, costly=True)
    newcomers: list[Asking] = []
    for _ in range(20):
        newcomers.append(Asking(world, 1))
        newcomers[-1].go_on()
        world.clock.now_ms += 20
        world.turn()
    assert old.begun >= 10
    assert _begun(newcomers) >= 10


def test_long_turns_are_made_shorter_by_beginning_less() -> None:
    world = World()
    flood = _flood(world, 100, costly=True)
    begun, each = _begun(flood), []
    for took_ms in (20, 20, 20, 0, 0, 20, 0, 0, 0, 0):
        world.clock.now_ms += took_ms
        world.turn()
        each.append(_begun(flood) - begun)
        begun = _begun(flood)
    assert each == [2, 1, 1, 2, 3, 1, 2, 3, 4, 4]


def test_cheap_requests_share_a_turn_when_many_have_more_than_one() -> None:
    world = World()
    alone = Asking(world, 200, costly=False)
    alone.go_on()
    assert alone.begun == SHARE
    flood = _flood(world, 500, costly=False)
    assert _begun(flood) < 500 + SHARE * 7
    begun = _begun([alone, *flood])
    for _ in range(100):
        world.turn()
        assert _begun([alone, *flood]) - begun <= COSTLY_MAX * SHARE
        begun = _begun([alone, *flood])


def test_nobody_waits_while_there_is_enough_for_all() -> None:
    world = World()
    for _ in range(20):
        for _ in range(COSTLY_MAX):
            one = Asking(world, 1)
            one.go_on()
            assert one.begun == 1
        world.turn()
        assert not world.turns.waiting
        assert world.turns.share == SHARE


def test_a_callback_that_fails_keeps_nobody_else_from_a_turn() -> None:
    world = World()
    flood = _flood(world, COSTLY_MAX, costly=True)

    def fail() -> None:
        raise RuntimeError("as told")

    world.turns.wait(fail, is_first=True)
    late = Asking(world, 1)
    late.go_on()
    failures = 0
    for _ in range(200):
        try:
            world.turn()
        except RuntimeError:
            failures += 1
    assert failures == 1
    assert late.begun == 1
    assert _begun(flood) == 50 * COSTLY_MAX
