"""Helper processes of a simulated broker: they do the same work on its disk, and may die."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Iterator

from lakelog.runtime.api import Disk, ProcessUsage
from lakelog.server.upkeep import cleaner_helper
from lakelog.storage.compaction.job import Answer, CompactionJob, encode_answer

_STEP_S_MAX = 0.2


class SimulatedHelper:
    """A `lakelog.runtime.api.Child` that runs the compaction helper, one step per answer."""

    def __init__(self, disk: Disk, rng: random.Random, death: float, faults: Counter[str]) -> None:
        self._disk = disk
        self._rng = rng
        self._death = death
        self._faults = faults
        self._answers: Iterator[Answer] = iter(())
        self._dead = False

    async def send(self, line: bytes) -> None:
        if self._dead:
            raise BrokenPipeError
        job = CompactionJob.decode(line)
        self._answers = cleaner_helper.answers(self._disk, job, lambda size: None)

    async def receive(self) -> bytes:
        await asyncio.sleep(self._rng.random() * _STEP_S_MAX)
        if self._rng.random() < self._death:
            self._faults["helper death"] += 1
            self._dead = True
            return b""
        return encode_answer(next(self._answers))

    async def end(self) -> int:
        return 0


class SimulatedHelpers:
    """`lakelog.runtime.api.Processes`; `death` is the chance that a helper dies at an answer."""

    def __init__(self, disk: Disk, rng: random.Random, faults: Counter[str]) -> None:
        self._disk = disk
        self._rng = rng
        self._faults = faults
        self.death = 0.0

    async def start(self, module: str) -> SimulatedHelper:
        assert module.endswith("cleaner_helper"), module
        return SimulatedHelper(self._disk, self._rng, self.death, self._faults)

    def usage(self) -> ProcessUsage:
        raise OSError(errno.ENOSYS, "a simulated process has no usage figures")
