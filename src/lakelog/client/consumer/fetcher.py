"""Keeps one Fetch request in flight at every leader of the partitions being read."""

from __future__ import annotations

import selectors
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.connection import Connection
from lakelog.client.consumer.fetch import (
    Fetched,
    FetchTarget,
    fetch_request,
    newest_version,
    read_response,
)
from lakelog.client.consumer.positions import Position
from lakelog.client.errors import ClientError, ConnectionLostError, log_retry, pause_s, refused
from lakelog.client.offsets import EpochEnd, epoch_ends_at_once
from lakelog.protocol.fetch import FetchResponse

_ANSWER_SLACK_S = 30.0


@dataclass(slots=True, frozen=True)
class FetchLimits:
    """Limits of one request, in bytes and milliseconds; see Kafka's fetch.* settings."""

    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    min_bytes: int = 1
    max_wait_ms: int = 500


@dataclass(slots=True, frozen=True)
class Trouble:
    """A failure that is retried, and since when it persists (seconds, monotonic clock)."""

    error: ClientError
    since_s: float


@dataclass(slots=True, frozen=True)
class Misplaced:
    """A position that cannot be fetched: its offset is not in the log, or the logs have diverged.

    end: where the log diverged from the log that was read. move: the position's turn at that time.
    """

    position: Position
    move: int
    end: EpochEnd | None = None


class _Leader:
    """The connection to a leader, and the targets of the request in flight."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.asked: list[tuple[FetchTarget, Position, int]] = []
        self.asked_s = 0.0
        """When the request was sent (seconds, monotonic clock)."""


class Fetcher:
    """Fills positions with batches; belongs to one thread.

    The next request to a leader is in flight while the consumer returns the batches of the last
    response.
    """

    def __init__(self, cluster: Cluster, limits: FetchLimits, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._limits = limits
        self._read_committed = read_committed
        self._leaders: dict[int, _Leader] = {}
        self._selector = selectors.DefaultSelector()
        self._failures = 0
        self._not_before_s = 0.0
        self._misplaced: list[Misplaced] = []
        self._trouble: Trouble | None = None
        """The failure that delays all records; cleared when records arrive."""
        self._leaderless: Trouble | None = None
        """The lack of leaders, which delays the records of their partitions only."""
        self._looks = 0
        self._look_at_s = 0.0
        """The number of refreshes for these leaders, and the earliest time of the next one."""

    @property
    def trouble(self) -> Trouble | None:
        """The failure that delays records, of some partitions at least."""
        return self._trouble or self._leaderless

    def close(self) -> None:
        """Close all connections. Fetched batches in positions are kept."""
        for node in list(self._leaders):
            self._drop(node)
        self._selector.close()

    def fetch(self, positions: Iterable[Position], timeout_s: float) -> list[Misplaced]:
        """Send requests for positions without records; wait for a response or `timeout_s`.

        Return positions whose offset is out of range, or whose log was cut below it. After a change
        of leader or a lost connection, refresh the view and pause. Raises `ClientError` for errors
        that are not retriable. timeout_s: seconds.
        """
        with self._healing():
            self._drop_silent()
        self.ask(positions)
        now = time.monotonic()
        times = (self._not_before_s, self._look_at_s if self._leaderless else 0.0)
        wait = min([timeout_s, *(at - now for at in times if at > now)])
        # A seek since then has made the finding void.
        misplaced = [
            finding for finding in self._misplaced if finding.position.move == finding.move
        ]
        self._misplaced = []
        if misplaced:
            return misplaced
        if not self._selector.get_map():
            time.sleep(wait)
            return []
        with self._healing():
            for key, _ in self._selector.select(wait):
                misplaced += self._receive(key.data)
        return misplaced

    def ask(self, positions: Iterable[Position]) -> None:
        """Send requests for positions that run out of records, without waiting for responses.

        Raises `ClientError` for errors that are not retriable.
        """
        if time.monotonic() >= self._not_before_s:
            with self._healing():
                self._ask([p for p in positions if p.offset is not None and p.is_running_low])

    @contextmanager
    def _healing(self) -> Iterator[None]:
        """Pause after a retriable error within the block; raise other errors."""
        try:
            yield
        except ClientError as error:
            if not error.retriable and not isinstance(error, ConnectionLostError):
                raise
            since_s = time.monotonic() if self._trouble is None else self._trouble.since_s
            self._trouble = Trouble(error, since_s)
            self._back_off(error)

    def _check_epochs(self, positions: list[Position]) -> tuple[list[Position], ClientError | None]:
        """Return the positions that can be fetched, and the error of the others.

        After a change of the leader epoch, the call asks the leader whether its log still has the
        records that were read (KIP-320).
        """
        to_check = {}
        misplaced = {id(finding.position) for finding in self._misplaced}
        positions = [position for position in positions if id(position) not in misplaced]
        for position in positions:
            if position.fetch_epoch >= 0 and position.checked_epoch != self._leader_epoch(position):
                to_check[position.key] = position
        asked = {key: position.fetch_epoch for key, position in to_check.items()}
        ends, failure = epoch_ends_at_once(self._cluster, asked)
        waiting = to_check.keys() - ends.keys()
        for key, end in ends.items():
            position = to_check[key]
            if position.reconcile(end):
                position.checked_epoch = self._leader_epoch(position)
            else:
                waiting.add(key)
                self._misplaced.append(Misplaced(position, position.move, end))
        return [position for position in positions if position.key not in waiting], failure

    def _with_leaders(self, positions: list[Position]) -> tuple[list[Position], ClientError | None]:
        """Return the positions in partitions with leaders, and the error of the others.

        A partition without a leader does not delay the others. Raises errors that are not
        retriable.
        """
        led, failure = [], None
        for position in positions:
            try:
                self._cluster.leader(*position.key)
            except ClientError as error:
                if not error.retriable:
                    raise
                failure = error
            else:
                led.append(position)
        return led, failure

    def _leader_epoch(self, position: Position) -> int:
        topic, partition = position.key
        self._cluster.leader(topic, partition)
        return self._cluster.view.topics[topic].partitions[partition].leader_epoch

    def _ask(self, positions: list[Position]) -> None:
        under_way = {id(p) for leader in self._leaders.values() for _, p, _ in leader.asked}
        by_node: dict[int, list[Position]] = defaultdict(list)
        led, leaderless = self._with_leaders([p for p in positions if id(p) not in under_way])
        ready, failure = self._check_epochs(led)
        for position in ready:
            by_node[self._cluster.leader(*position.key).node_id].append(position)
        for node, on_node in by_node.items():
            leader = self._leader(node)
            # One request per leader at a time: the broker answers in order, so a second one would
            # wait behind the long poll of the first.
            if leader.asked:
                continue
            leader.asked = [(self._target(p), p, p.move) for p in on_node]
            leader.asked_s = time.monotonic()
            targets = [target for target, _, _ in leader.asked]
            limits = self._limits
            request = fetch_request(
                targets,
                max_wait_ms=limits.max_wait_ms,
                min_bytes=limits.min_bytes,
                max_bytes=limits.max_bytes,
                read_committed=self._read_committed,
            )
            try:
                leader.connection.send(request, newest=newest_version(targets))
            except ConnectionLostError:
                self._drop(node)
                raise
        self._look_for_leaders(leaderless)
        if failure is not None:
            raise failure

    def _look_for_leaders(self, cause: ClientError | None) -> None:
        """Refresh the view, with growing pauses, while a partition has no leader; `cause` says so.

        Unlike after other failures, requests for other partitions do not pause.
        """
        if cause is None:
            self._leaderless, self._looks = None, 0
            return
        now = time.monotonic()
        if self._leaderless is None:
            self._leaderless = Trouble(cause, now)
        elif now < self._look_at_s:
            return
        self._look_at_s = now + pause_s(self._looks)
        log_retry(cause, pause_s(self._looks))
        self._looks += 1
        self._refresh()

    def _target(self, position: Position) -> FetchTarget:
        name, partition = position.key
        topic = self._cluster.view.topics[name]
        epoch = topic.partitions[partition].leader_epoch
        size = self._limits.partition_max_bytes
        offset, last_epoch = position.fetch_offset, position.fetch_epoch
        return FetchTarget(topic, partition, offset, size, epoch, last_epoch)

    def _leader(self, node: int) -> _Leader:
        leader = self._leaders.get(node)
        if leader is None:
            leader = self._leaders[node] = _Leader(self._cluster.connect(node))
            self._selector.register(leader.connection, selectors.EVENT_READ, node)
        return leader

    def _receive(self, node: int) -> list[Misplaced]:
        leader = self._leaders[node]
        try:
            response = leader.connection.receive(self._answer_limit_s)[1]
        except ClientError:
            self._drop(node)
            raise
        assert isinstance(response, FetchResponse)
        asked, leader.asked = leader.asked, []
        results = read_response(response, [target for target, _, _ in asked])
        by_target = {id(target): (position, move) for target, position, move in asked}
        misplaced = []
        for fetched in results:
            position, move = by_target[id(fetched.target)]
            # The position was moved after the request was sent: its records are no longer wanted.
            if position.move != move:
                continue
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                misplaced.append(Misplaced(position, move))
            elif fetched.diverged is not None:
                if not position.reconcile(fetched.diverged):
                    misplaced.append(Misplaced(position, move, fetched.diverged))
            elif fetched.error:
                self._complain(fetched)
            else:
                self._failures = 0
                self._trouble = None
                position.add(fetched)
        return misplaced

    def _complain(self, fetched: Fetched) -> None:
        """Raise errors that are not retriable; after the others, refresh the view of leaders."""
        target = fetched.target
        where = f"{target.topic.name}-{target.partition} at offset {target.offset}"
        error = refused(fetched.error, where)
        if not error.retriable:
            raise error
        # Other partitions of the same response are still returned.
        self._back_off(error)

    def _back_off(self, cause: ClientError) -> None:
        pause = pause_s(self._failures)
        log_retry(cause, pause)
        self._not_before_s = time.monotonic() + pause
        self._failures += 1
        self._refresh()

    def _refresh(self) -> None:
        try:
            self._cluster.refresh(list(self._cluster.view.topics))
        except ClientError as error:
            # The next attempt refreshes the view again.
            if not error.retriable:
                raise

    @property
    def _answer_limit_s(self) -> float:
        return self._limits.max_wait_ms / 1000 + _ANSWER_SLACK_S

    def _drop_silent(self) -> None:
        """Raise `ConnectionLostError` if a leader has not answered within the limit.

        The connection to a host that has failed stays open.
        """
        limit = time.monotonic() - self._answer_limit_s
        for node, leader in self._leaders.items():
            if leader.asked and leader.asked_s < limit:
                self._drop(node)
                text = f"no answer within {self._answer_limit_s:g} s"
                raise ConnectionLostError(text, timed_out=True)

    def _drop(self, node: int) -> None:
        leader = self._leaders.pop(node)
        self._selector.unregister(leader.connection)
        leader.connection.close()
