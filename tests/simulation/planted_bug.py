"""A bug as a patch of the product, and a plan of a world that should show it.

The bugs follow what Jepsen and the KIPs have found elsewhere: no deduplication, epochs used twice,
reads beyond the last stable offset, fsyncs left out, acknowledgements without a write, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from simulator import Plan
from simulator.checkers.laws import Law

Patch = Callable[[pytest.MonkeyPatch], None]
BUGS: list[Bug] = []
FLIP = "flipped record"


@dataclass(frozen=True)
class Bug:
    """A bug that must break `law` in one of `seeds` worlds from seed `first` on.

    `report` is a part of the violation's text, for a law that is checked in several places.
    `settings` are added to the broker's settings; faults last for `seconds`.
    """

    name: str
    law: Law
    patch: Patch
    workloads: tuple[str, ...]
    faults: tuple[str, ...] = ()
    seeds: int = 10
    first: int = 1
    settings: dict[str, str] = field(default_factory=dict)
    seconds: float = 15.0
    report: str = ""

    def plan(self) -> Plan:
        plan = Plan(self.seconds, frozenset(self.workloads), frozenset(self.faults))
        plan.settings.update(self.settings)
        return plan


def bug(name: str, law: Law, *workloads: str, **rest: Any) -> Callable[[Patch], Patch]:
    def plant(patch: Patch) -> Patch:
        BUGS.append(Bug(name, law, patch, workloads, **rest))
        return patch

    return plant
