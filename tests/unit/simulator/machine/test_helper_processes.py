"""Helper processes that die at an answer, and stay dead."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from doubles.disk import MemoryDisk
from simulator.machine.helper_processes import SimulatedHelpers
from storage_kit import ManualClock
from virtual_time import run_in_virtual_time


def test_a_helper_that_dies_answers_nothing_more() -> None:
    faults: Counter[str] = Counter()
    helpers = SimulatedHelpers(MemoryDisk(ManualClock()), random.Random(1), faults)
    helpers.death = 1.0

    async def work(loop: asyncio.AbstractEventLoop) -> None:
        helper = await helpers.start("lakelog.server.upkeep.cleaner_helper")
        assert await helper.receive() == b""
        with pytest.raises(BrokenPipeError):
            await helper.send(b"{}")

    run_in_virtual_time(work)
    assert faults == {"helper death": 1}


def test_only_the_cleaner_has_helpers() -> None:
    helpers = SimulatedHelpers(MemoryDisk(ManualClock()), random.Random(1), Counter())
    with pytest.raises(AssertionError, match="other"):
        run_in_virtual_time(lambda loop: helpers.start("lakelog.other"))
