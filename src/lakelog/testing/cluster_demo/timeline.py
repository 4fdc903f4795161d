"""The longest times without an acknowledged write, and the lines of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Gap(NamedTuple):
    """A time without an acknowledged write in one partition, in seconds from the start."""

    partition: int
    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Seconds between the two acknowledgements."""
        return self.end_s - self.begin_s


def longest_gap(
    acknowledged: Iterable[tuple[int, float]], begin_s: float, end_s: float
) -> Gap | None:
    """Return the longest gap of any partition that overlaps the times from `begin_s` to `end_s`.

    acknowledged: partition and time of each acknowledged write, in the order of time. A gap that
    has not ended counts as well. None if no partition has a write.
    """
    before: dict[int, float] = {}
    gaps = []
    for partition, moment in acknowledged:
        if partition in before and moment >= begin_s and before[partition] <= end_s:
            gaps.append(Gap(partition, before[partition], moment))
        before[partition] = moment
    gaps += [Gap(partition, last, end_s) for partition, last in before.items() if last < end_s]
    return max(gaps, key=lambda gap: gap.length_s, default=None)


class Fault(NamedTuple):
    """An injected fault with its text, and the time until all replicas were in sync again."""

    text: str
    begin_s: float
    end_s: float


def table(faults: Sequence[Fault], gaps: Sequence[Gap | None]) -> str:
    """Return one line per fault, with the longest gap that it caused."""
    assert len(faults) == len(gaps)
    width = max(len(fault.text) for fault in faults)
    lines = [f"{'fault':<{width}}  longest gap of acknowledged writes"]
    lines.append("─" * len(lines[0]))
    for fault, gap in zip(faults, gaps, strict=True):
        shown = "no write" if gap is None else f"{gap.length_s:.2f} s (partition {gap.partition})"
        lines.append(f"{fault.text:<{width}}  {shown}")
    return "\n".join(lines)
