"""Conditions that excuse late responses, and waits for acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from simulator.conditions import Conditions
from simulator.engine.loop import SimulatedLoop


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(None)
    yield loop
    loop.close()


def test_a_disturbance_excuses_requests_until_shortly_after_its_end(loop: SimulatedLoop) -> None:
    conditions = Conditions(loop)

    async def main() -> None:
        await asyncio.sleep(10)
        assert not conditions.was_disturbed(since=10)
        with conditions.disturbing():
            assert conditions.was_disturbed(since=10)
            with conditions.disturbing():
                await asyncio.sleep(5)
            assert conditions.was_disturbed(since=1000), "the outer disturbance continues"
        assert conditions.was_disturbed(since=15)
        assert conditions.was_disturbed(since=16)
        assert not conditions.was_disturbed(since=17)

    loop.run_until_complete(main())


@pytest.mark.parametrize(("acknowledged_at", "waited_s"), [(2.0, 2.0), (9.0, 5.0)])
def test_a_fault_waits_for_an_acknowledgement_or_its_timeout(
    loop: SimulatedLoop, acknowledged_at: float, waited_s: float
) -> None:
    conditions = Conditions(loop)
    conditions.on_acknowledged()  # with no waiter it is forgotten
    loop.call_later(acknowledged_at, conditions.on_acknowledged)
    loop.run_until_complete(conditions.next_acknowledgement(5.0))
    assert loop.time() == pytest.approx(waited_s)
