"""The other replicas of a partition, as its leader knows them from their fetches.

A follower asks for the offset where its log ends, so a fetch acknowledges everything before that.
It is caught up at a time if it has everything that the leader had at that time: a follower that
always fetches to the end of a growing log is caught up, although it never has its newest record.

Source: `org.apache.kafka.server.replica.Replica` of Apache Kafka, KIP-497, KIP-903.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import NamedTuple, Protocol

_UNKNOWN = -1


class FollowerId(NamedTuple):
    """The broker that fetches as a follower, and the epoch of its registration."""

    node_id: int
    broker_epoch: int


class FetchTime(Protocol):
    """The time of the last request of a fetch session."""

    @property
    def fetched_ms(self) -> int: ...


class Follower:
    """One replica. Times are milliseconds of the leader's monotonic clock."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "idle_in",
        "leader_end",
        "log_start_offset",
        "on_stir",
    )

    def __init__(self, now_ms: int) -> None:
        """Count the follower as caught up now: it gets its time to prove that it is."""
        self.broker_epoch = _UNKNOWN
        """The registration with which it fetched last."""
        self.end_offset = _UNKNOWN
        """The end of its log, exclusive; -1 before its first fetch."""
        self.log_start_offset = _UNKNOWN
        """The start of its log; -1 before its first fetch."""
        self.fetched_ms = now_ms
        self.leader_end = 0
        """The end of the leader's log at its last fetch."""
        self.caught_up_ms = now_ms
        self.idle_in: FetchTime | None = None
        """The session whose requests find the follower at the end of the leader's log."""
        self.on_stir: Callable[[], object] | None = None
        """Called once when the follower is not idle any more."""

    def end_idle(self) -> None:
        """Note the last request of the session: the leader's log may grow from now on."""
        session, self.idle_in = self.idle_in, None
        if session is not None:
            self.fetched_ms = self.caught_up_ms = max(self.caught_up_ms, session.fetched_ms)
            self._stir()

    def _stir(self) -> None:
        stirred, self.on_stir = self.on_stir, None
        if stirred is not None:
            stirred()

    def note_fetch(self, broker_epoch: int, offset: int, leader_end: int, now_ms: int) -> None:
        """Note a fetch at `offset`, while the leader's log ended at `leader_end`."""
        if self.idle_in is not None:  # in a former session
            self.idle_in = None
            self._stir()
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        # It has not everything now, but everything that the leader had at its last fetch, so it was
        # caught up then. Comparing with the present end would drop every follower of a busy leader
        # from the ISR (KAFKA-1546).
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.broker_epoch, self.end_offset = broker_epoch, offset
        self.leader_end, self.fetched_ms = leader_end, now_ms

    def lags(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Return whether it has been behind for more than `lag_max_ms` (KIP-16)."""
        # A follower that has everything is in sync however long ago it fetched: an idle partition
        # has no fetches to prove it by.
        if self.end_offset >= leader_end:
            return False
        session = self.idle_in
        caught_up_ms = self.caught_up_ms
        if session is not None and session.fetched_ms > caught_up_ms:
            caught_up_ms = session.fetched_ms
        return now_ms - caught_up_ms > lag_max_ms

    def is_mute(self, leader_end: int, now_ms: int, mute_max_ms: int) -> bool:
        """Return whether it lacks records and has sent no fetch for more than `mute_max_ms`."""
        # The first fetch of a leader epoch may take a while, after an election of many partitions.
        if self.end_offset == _UNKNOWN or self.end_offset >= leader_end:
            return False
        session = self.idle_in
        fetched_ms = self.fetched_ms if session is None else session.fetched_ms
        return now_ms - fetched_ms > mute_max_ms


class Followers:
    """The followers of one partition during one leader epoch of its leader."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[int, Follower] = {}

    def begin(self, replicas: Iterable[int], now_ms: int) -> None:
        """Forget all positions: a leader epoch begins, and followers may truncate their logs."""
        # Positions of an earlier leader epoch prove nothing. A follower that truncates now has less
        # than it had reported, and a watermark over the old position would commit records that it
        # lacks.
        self._by_id = {node_id: Follower(now_ms) for node_id in replicas}

    def keep(self, replicas: Iterable[int], now_ms: int) -> None:
        """Follow a change of the assigned replicas within a leader epoch."""
        former = self._by_id
        self._by_id = {node_id: former.get(node_id) or Follower(now_ms) for node_id in replicas}

    def get(self, node_id: int) -> Follower | None:
        """Return the follower, or `None` for a broker that is not assigned."""
        return self._by_id.get(node_id)

    def end(self, in_sync: Iterable[int]) -> int:
        """Return the end of the records that all of these replicas have; -1 if it is unknown."""
        return min(self._by_id[node_id].end_offset for node_id in in_sync)

    def log_start(self, live: Container[int]) -> int | None:
        """Return the smallest log start offset of live followers; None without any, -1 if unknown.

        live: node ids of the live brokers.
        """
        starts = (follower.log_start_offset for id_, follower in self._by_id.items() if id_ in live)
        return min(starts, default=None)

    def lagging(
        self, in_sync: Iterable[int], leader_end: int, now_ms: int, lag_max_ms: int
    ) -> list[int]:
        """Return the in-sync replicas that have been behind for more than `lag_max_ms`."""
        return [
            node_id
            for node_id in in_sync
            if self._by_id[node_id].lags(leader_end, now_ms, lag_max_ms)
        ]

    def mute(
        self, in_sync: Iterable[int], leader_end: int, now_ms: int, mute_max_ms: int
    ) -> list[int]:
        """Return the in-sync replicas that lack records and do not fetch, see `Follower`."""
        return [
            node_id
            for node_id in in_sync
            if self._by_id[node_id].is_mute(leader_end, now_ms, mute_max_ms)
        ]
