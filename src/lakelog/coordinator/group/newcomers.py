"""Which groups give way to new ones when there is no room.

A newcomer is a group whose offsets were all committed within a few seconds: a client that commits
again later has a group in use. Those of the minute in which most newcomers came go first, because a
flood of groups comes at once. Whatever came before it or after it stays. While the busiest minute
is the present one nothing goes, so offsets are kept for a minute at least, and a client that
commits once in a minute never loses any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

NEWCOMER_MS = 10_000
"""A group that commits again after so long is in use."""
_MINUTE_MS = 60_000


class Newcomer(NamedTuple):
    since_ms: int
    """Of its first commit, milliseconds since the epoch."""
    group_id: str


def in_order_of_eviction(newcomers: Sequence[Newcomer], now_ms: int) -> Iterator[Newcomer]:
    """The newcomers that may go by now, the first to go first."""
    counts = Counter(each.since_ms // _MINUTE_MS for each in newcomers)
    busiest = sorted(counts, key=lambda minute: (counts[minute], minute), reverse=True)
    for minute in busiest:
        if (minute + 1) * _MINUTE_MS + NEWCOMER_MS > now_ms - _MINUTE_MS:
            return
        of_minute = [each for each in newcomers if each.since_ms // _MINUTE_MS == minute]
        yield from sorted(of_minute, reverse=True)
