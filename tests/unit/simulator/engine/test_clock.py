"""The wall clock of a simulated host."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from simulator.engine.clock import WALL_START_MS, SimulatedClock
from simulator.engine.loop import SimulatedLoop


@contextmanager
def running() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(random.Random(1))
    yield loop
    loop.close()


def wait(loop: SimulatedLoop, until: float) -> None:
    loop.call_at(until, loop.stop)
    loop.run_forever()


def test_the_spread_covers_all_returned_times() -> None:
    with running() as loop:
        clock = SimulatedClock(loop)
        wait(loop, 1.0)
        assert clock.spread_ms(0.0) == pytest.approx(1000, abs=1)
        clock.leap(-5000)
        wait(loop, 2.0)
        assert clock.wall_ms() == pytest.approx(WALL_START_MS - 3000, abs=1)
        assert clock.spread_ms(0.0) == pytest.approx(5000, abs=1)
        clock.leap(5000)
        wait(loop, 3.0)
        assert clock.spread_ms(0.0) == pytest.approx(7000, abs=1)
        assert clock.spread_ms(1.5) == pytest.approx(1500 + 5000, abs=2)
        assert clock.spread_ms(2.5) == pytest.approx(500, abs=1)


def test_a_skewed_monotonic_clock_begins_elsewhere_and_runs_at_its_own_rate() -> None:
    with running() as loop:
        clock = SimulatedClock(loop)
        clock.skew(100.0, 1.5)
        before = clock.monotonic()
        assert before >= 100.0
        wait(loop, 2.0)
        assert clock.monotonic() - before == pytest.approx(3.0, abs=0.01)
