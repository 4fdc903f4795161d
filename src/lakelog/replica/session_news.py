"""The partitions of a large fetch session that may have news, so that idle ones cost nothing.

A partition is due while a read may find something: after its begin, a change by the client, and
each event on it. A read that finds nothing has the session watch the partition in the purgatory
instead; the next event makes it due again. A few watched partitions are read with each request, in
turn, for changes without an event: retention moves the start of a log.

A follower acknowledges its position in all partitions with each request. The leader notes it for
due partitions; a follower of a watched partition is at the end of the leader's log at each request,
because an append is an event.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import NamedTuple

from lakelog.replica.followers import Follower
from lakelog.replica.purgatory import Parked, Purgatory

READ_PER_ITERATION = 4
"""Watched partitions that each request reads."""

Place = tuple[str | bytes, int]


class _Watched(NamedTuple):
    key: Hashable
    follower: Follower | None


class SessionNews:
    """The due and the watched partitions of one session."""

    __slots__ = ("_due", "_purgatory", "_watched", "fetched_ms", "parked")

    def __init__(self, purgatory: Purgatory, places: Iterable[Place]) -> None:
        self._purgatory = purgatory
        self._due: dict[Place, None] = dict.fromkeys(places)
        self._watched: dict[Place, _Watched] = {}
        self.parked: Parked | None = None
        """The waiting request of the session."""
        self.fetched_ms = 0
        """The time of the last request, on the monotonic clock."""

    def due(self) -> list[Place]:
        """Return the partitions that a request has to read."""
        return list(self._due)

    def note_request(self) -> None:
        """Make some watched partitions due, in turn."""
        for partition in list(islice(self._watched, READ_PER_ITERATION)):
            self.add(partition)

    def add(self, partition: Place) -> None:
        """Make a partition due; it may be new in the session."""
        self._unwatch(partition)
        self._due[partition] = None

    def remove(self, partition: Place) -> None:
        """Forget a partition."""
        self._unwatch(partition)
        self._due.pop(partition, None)

    def note_event(self, partition: Place) -> None:
        """Make a partition due after an event; the purgatory does not watch it any more."""
        self._end_idle(self._watched.pop(partition))
        self._due[partition] = None

    def conclude(self, partition: Place, key: Hashable, follower: Follower | None) -> None:
        """Read the partition `key` only after its next event: there is nothing to find now.

        follower: that of the session, if it has one.
        """
        self.watch(partition, key, follower)
        self._due.pop(partition, None)
        if follower is not None:
            follower.idle_in = self

    def watch(self, partition: Place, key: Hashable, follower: Follower | None = None) -> None:
        """Have the next event on the partition `key` try the waiting request."""
        self._unwatch(partition)
        assert follower is None or follower.idle_in is not self, "it was ended with its watch"
        self._watched[partition] = _Watched(key, follower)
        self._purgatory.watch(key, self, partition)

    def close(self) -> None:
        """Forget all partitions."""
        for partition in list(self._watched):
            self._unwatch(partition)
        self._due.clear()

    def _unwatch(self, partition: Place) -> None:
        watched = self._watched.pop(partition, None)
        if watched is not None:
            self._purgatory.unwatch(watched.key, self)
            self._end_idle(watched)

    def _end_idle(self, watched: _Watched) -> None:
        follower = watched.follower
        if follower is not None and follower.idle_in is self:
            follower.end_idle()
