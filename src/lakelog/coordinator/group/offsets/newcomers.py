"""The order in which groups are evicted when there is no room for new ones.

A newcomer is a group whose offsets were all committed within 10 seconds. A client that commits
again later has a group in use. A flood of groups comes within a short time, so the newcomers of the
minute with most newcomers are evicted first, and earlier and later groups stay.
Newcomers of the current minute are not evicted. So offsets are kept for at least a minute, and a
client that commits once a minute never loses any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

NEWCOMER_MS = 10_000
"""A group that commits again after this time is in use."""
_MINUTE_MS = 60_000


class Newcomer(NamedTuple):
    """A group that may be evicted."""

    since_ms: int
    """Time of its first commit, milliseconds since the epoch."""
    group_id: str


def in_order_of_eviction(newcomers: Sequence[Newcomer], now_ms: int) -> Iterator[Newcomer]:
    """Yield the newcomers that may be evicted now, in the order of eviction.

    `now_ms` is in milliseconds since the epoch. Nothing is yielded once the fullest remaining
    minute is too recent.
    """
    counts = Counter(each.since_ms // _MINUTE_MS for each in newcomers)
    busiest = sorted(counts, key=lambda minute: (counts[minute], minute), reverse=True)
    for minute in busiest:
        if (minute + 1) * _MINUTE_MS + NEWCOMER_MS > now_ms - _MINUTE_MS:
            return
        of_minute = [each for each in newcomers if each.since_ms // _MINUTE_MS == minute]
        yield from sorted(of_minute, reverse=True)
