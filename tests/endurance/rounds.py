"""When the broker is killed: the moments of the rounds, by seed, and how each is waited for."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from broker_process import BrokerProcess
from waiting import EventTimeoutError, eventually

Moment = Literal["under load", "compaction", "roll", "start"]
MOMENTS: tuple[Moment, ...] = ("under load", "compaction", "roll", "start")
_SWAPPING = (".cleaned", ".swap", ".deleted")
_LOAD_S_MAX = 1.5
_START_S_MAX = 0.6
_FILE_S_MAX = 10.0


def moments(count: int, rng: random.Random) -> list[Moment]:
    """Each of them as often as any other, in random order."""
    found: list[Moment] = []
    while len(found) < count:
        found += rng.sample(MOMENTS, len(MOMENTS))
    return found[:count]


def kill_at(broker: BrokerProcess, moment: Moment, rng: random.Random) -> None:
    """Returns when the broker is dead; at a start, when it has been killed in that too."""
    match moment:
        case "under load":
            time.sleep(rng.uniform(0, _LOAD_S_MAX))
        case "compaction":
            _wait(lambda: _has_file(broker.data, "__consumer_offsets-", _SWAPPING))
            time.sleep(rng.choice((0, 0, 0.002, 0.01)))
        case "roll":
            before = _logs(broker.data)
            _wait(lambda: _logs(broker.data) - before)
            time.sleep(rng.choice((0, 0, 0.002, 0.01)))
        case "start":
            broker.kill()
            broker.launch()
            time.sleep(rng.uniform(0, _START_S_MAX))
    broker.kill()


def _wait(is_so: Callable[[], object]) -> None:
    """Return as soon as it is; a round in which it never is still has its kill."""
    with suppress(EventTimeoutError):
        eventually(is_so, _FILE_S_MAX, every_s=0.001)


def _has_file(data: Path, prefix: str, suffixes: tuple[str, ...]) -> bool:
    return any(
        path.name.endswith(suffixes)
        for folder in data.glob(f"{prefix}*")
        for path in folder.iterdir()
    )


def _logs(data: Path) -> set[Path]:
    return set(data.glob("*/*.log"))
