"""Faults are injected until the end; if some are deaths, until one has happened."""

from __future__ import annotations

import random

import pytest

from simulator.conditions import RECOVERY_S, Conditions
from simulator.engine.simulator import Simulator
from simulator.faults.injections import Injections


class Faults:
    """Counts faults that are injected for a time, and how many of them disturb."""

    def __init__(self) -> None:
        self.simulator = Simulator(1)
        self.conditions = Conditions(self.simulator.loop)
        self.disturbing = 0

    def run(self, names: list[str], seconds: float, *, harmless: tuple[str, ...] = ()) -> None:
        async def inject() -> None:
            # Beyond the time in which a broker recovers from earlier faults.
            since = self.simulator.loop.time() + RECOVERY_S
            self.disturbing += self.conditions.was_disturbed(since)

        injections = Injections(
            self.simulator,
            self.conditions,
            random.Random(1),
            dict.fromkeys(names, inject),
            harmless=harmless,
        )
        self.simulator.loop.run_until_complete(injections.run(names, seconds))
        self.simulator.loop.close()


@pytest.mark.parametrize("death", ["kill", "wipe"])
def test_a_death_happens_after_the_end_at_the_latest(death: str) -> None:
    faults = Faults()
    faults.run(["reset", death], 0.1)
    assert faults.simulator.faults[death] == 1


def test_without_deaths_faults_end_with_the_time() -> None:
    faults = Faults()
    faults.run(["reset", "clock"], 60.0)
    assert set(faults.simulator.faults) == {"reset", "clock"}
    assert 60.0 <= faults.simulator.loop.time() < 65.0


def test_without_faults_the_time_passes() -> None:
    faults = Faults()
    faults.run([], 10.0)
    assert faults.simulator.loop.time() >= 10.0
    assert not faults.simulator.faults


def test_only_a_harmless_fault_excuses_no_late_response() -> None:
    faults = Faults()
    faults.run(["clock"], 30.0, harmless=("clock",))
    assert faults.disturbing == 0 < faults.simulator.faults["clock"]
    faults = Faults()
    faults.run(["reset"], 30.0, harmless=("clock",))
    assert faults.disturbing == faults.simulator.faults["reset"] > 0
