"""Rounds of a benchmark: warmed until they repeat, then measured, brokers in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    name: str


_STEADY_RATIO = 1.1
WARM_UP_MAX = 5
"""Rounds of warming, at most: on a machine that others use, rounds may never repeat."""

B = TypeVar("B", bound=Named)
M = TypeVar("M")


def note(text: str) -> None:
    """Print a note about the progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def is_steady(figures: Sequence[float]) -> bool:
    """Whether the last two differ by less than a tenth."""
    if len(figures) < 2:
        return False
    low, high = sorted(figures[-2:])
    return high < low * _STEADY_RATIO


def warmed(measure: Callable[[], float]) -> list[float]:
    """Measures until it is steady; all figures."""
    figures: list[float] = []
    while not is_steady(figures) and len(figures) < WARM_UP_MAX:
        figures.append(measure())
    return figures


def interleaved(
    name: str,
    brokers: Sequence[B],
    rounds: int,
    measure: Callable[[B], M],
    figure: Callable[[M], float],
) -> dict[str, list[M]]:
    """Return each broker's measured rounds, which begin when all brokers are steady.

    The last broker of a round is the first of the next.
    """
    order = list(brokers)
    warming: dict[str, list[float]] = {broker.name: [] for broker in brokers}
    while not all(map(is_steady, warming.values())) and _fewest(warming) < WARM_UP_MAX:
        for broker in order:
            warming[broker.name].append(figure(measure(broker)))
        order.reverse()
    found: dict[str, list[M]] = {broker.name: [] for broker in brokers}
    for number in range(1, rounds + 1):
        for broker in order:
            measured = measure(broker)
            note(f"{name}, round {number} of {rounds}, {broker.name}: {measured}")
            found[broker.name].append(measured)
        order.reverse()
    return found


def _fewest(warming: dict[str, list[float]]) -> int:
    return min(map(len, warming.values()))
