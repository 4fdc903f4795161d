"""Fetch sessions (KIP-227): the broker keeps a consumer's partitions between its requests.

A request names a session and an epoch:

    (0, -1)  no session: everything is in the request and in the response
    (x,  0)  a full request: session x is dropped and a new one is created
    (x, -1)  session x is closed; the request itself is answered without a session
    (x,  n)  incremental: the request lists only changed partitions, and so does the response

The cache reads no log. `FetchSessions.begin` returns the partitions to read, and
`FetchPlan.includes` selects the results that a response must contain.

Sessions are bounded in number and in memory. A client that gets no session continues with full
requests. A session that outgrows the limit is dropped, and its client gets
FETCH_SESSION_ID_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Account, Share
from lakelog.base.uuids import ZERO_UUID
from lakelog.protocol.fetch import FetchRequest
from lakelog.replica.followers import FollowerId
from lakelog.replica.purgatory import Purgatory
from lakelog.replica.session_news import SessionNews
from lakelog.runtime.api import Random

SESSIONLESS_EPOCH = -1
FULL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
MEMORY_MAX = 64 * 1024 * 1024
"""Largest size of all sessions together, in bytes."""
UNKNOWN_MAX = 100
"""Unknown partitions that one request may add to a session; they may be created later. A correct
client requests few of them, so more of them would only fill the memory."""
_TARGET_BYTES = 1024
"""Upper bound of a target and its place in a session, without the topic's name."""

PartitionKey = tuple[str | bytes, int]


LARGE = 32
"""The number of partitions from which on a session watches idle ones."""


class FetchTarget:
    """One fetched partition, and the offsets that the consumer last received for it.

    `sent_high_watermark` and `sent_log_start_offset` are -1 as long as none was sent.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(
        self,
        topic: str | bytes,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int = -1,
    ) -> None:
        """log_start_offset: of a follower."""
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1


class FetchSession:
    """The partitions of one consumer; a dropped session has none."""

    __slots__ = ("epoch", "id", "last_used", "memory", "news", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now
        self.targets: dict[PartitionKey, FetchTarget] = {}
        self.memory = 0
        self.news: SessionNews | None = None
        """Which partitions have to be read; None for all of them."""

    def know_news(self, purgatory: Purgatory) -> None:
        """Follow the events on the partitions if they are many."""
        if self.news is None and len(self.targets) >= LARGE:
            self.news = SessionNews(purgatory, self.targets)
            self.news.fetched_ms = int(self.last_used * 1000)
        elif self.news is not None and len(self.targets) < LARGE // 2:
            self.forget_news()

    def forget_news(self) -> None:
        """Read all partitions with each request."""
        if self.news is not None:
            self.news.close()
            self.news = None

    def due(self) -> list[FetchTarget]:
        """Return the partitions that a request has to read."""
        if self.news is None:
            return list(self.targets.values())
        return [self.targets[key] for key in self.news.due()]

    def note_change(self, target: FetchTarget) -> None:
        """Note that the client has added or changed a partition."""
        if self.news is not None:
            self.news.add((target.topic, target.partition))

    def add(self, target: FetchTarget) -> None:
        """Add a partition that the session does not have."""
        assert (target.topic, target.partition) not in self.targets, "its memory is counted once"
        self.targets[target.topic, target.partition] = target
        self.memory += _memory(target.topic)
        self.note_change(target)

    def remove(self, topic: str | bytes, partition: int) -> None:
        """Remove a partition, if the session has it."""
        if self.targets.pop((topic, partition), None) is not None:
            self.memory -= _memory(topic)
            if self.news is not None:
                self.news.remove((topic, partition))

    def replace(self, key: PartitionKey, target: FetchTarget) -> None:
        """Replace the target of a partition; the offsets sent to the client are kept."""
        former = self.targets[key]
        target.sent_high_watermark = former.sent_high_watermark
        target.sent_log_start_offset = former.sent_log_start_offset
        self.targets[key] = target

    def advance(self, now: float) -> None:
        """Move to the epoch of the next request; `now` is on the monotonic clock."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        self.last_used = now
        if self.news is not None:
            self.news.fetched_ms = int(now * 1000)


class FetchPlan:
    """The partitions that one request reads.

    session: `None` if the response is complete in itself. incremental: whether the response omits
    unchanged partitions.
    """

    __slots__ = ("incremental", "session", "targets")

    def __init__(
        self, targets: list[FetchTarget], session: FetchSession | None, incremental: bool
    ) -> None:
        self.targets = targets
        self.session = session
        self.incremental = incremental

    def refresh(self) -> None:
        """Apply the partitions that are due by now; a complete response has all of them."""
        if self.incremental and self.session is not None and self.session.news is not None:
            self.targets = self.session.due()

    @property
    def session_id(self) -> int:
        """The session id of the response; 0 without a session."""
        return 0 if self.session is None else self.session.id

    def includes(
        self, target: FetchTarget, error: int, size: int, high_watermark: int, log_start: int
    ) -> bool:
        """Return whether the response must contain this result; note its offsets as sent.

        error: not 0 for an error or a diverging epoch. The sent offsets are then forgotten, so that
            the partition is reported again after the error.
        size: bytes of records.
        """
        if self.session is None:
            return True
        # Otherwise the first result after the error could equal the last one before it and be left
        # out, and the client would keep the error (as in Kafka's `CachedPartition`).
        if error:
            target.sent_high_watermark = -1
            return True
        news = (
            size > 0
            or target.sent_high_watermark != high_watermark
            or target.sent_log_start_offset != log_start
        )
        target.sent_high_watermark = high_watermark
        target.sent_log_start_offset = log_start
        # Only with records: a partition that sent none has taken nothing from the limit.
        if size and self.incremental:
            self._rotate(target)
        return news or not self.incremental

    def _rotate(self, target: FetchTarget) -> None:
        """Move a served partition to the end, so that the byte limit of a response starves none."""
        assert self.session is not None
        key = (target.topic, target.partition)
        if self.session.targets.pop(key, None) is not None:
            self.session.targets[key] = target
            if self.session.news is not None:
                self.session.news.remove(key)
                self.session.news.add(key)


def follower_of(request: FetchRequest, version: int) -> FollowerId | None:
    """Return the follower that sends the request; None for a consumer."""
    if version >= _REPLICA_STATE_SINCE:
        state = request.replica_state
        return FollowerId(state.replica_id, state.replica_epoch) if state.replica_id >= 0 else None
    return FollowerId(request.replica_id, -1) if request.replica_id >= 0 else None


class FetchSessions:
    """The broker's session cache, with a bounded number of slots and a bound on their memory.

    Args:
        is_known: returns whether this broker has a partition.
        purgatory: reports events on partitions to large sessions.
        slots_max: largest number of sessions (`max.incremental.fetch.session.cache.slots`).
        memory_max: largest size of all sessions in bytes, estimated from their partitions.
        share: of the memory budget; the state of coordinators takes from it as well.
        evict_after_s: seconds after which an unused session may be evicted for a new one.
    """

    def __init__(
        self,
        random: Random,
        is_known: Callable[[str | bytes, int], bool],
        purgatory: Purgatory,
        *,
        slots_max: int = 1000,
        memory_max: int = MEMORY_MAX,
        share: Share,
        evict_after_s: float = 120.0,
    ) -> None:
        self._random = random
        self._is_known = is_known
        self._purgatory = purgatory
        self._slots_max = slots_max
        self._memory_max = memory_max
        self._share = share
        self._evict_after_s = evict_after_s
        self._sessions: dict[int, FetchSession] = {}
        self._account: Account[int] = Account(share)
        self.evicted = 0
        """Number of unused sessions that were evicted for new ones."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def memory(self) -> int:
        """Estimated bytes of all sessions."""
        return self._account.total

    def begin(self, request: FetchRequest, version: int, now: float) -> FetchPlan:
        """Return the plan of `request`; `now` is on the monotonic clock, in seconds.

        Raises `KafkaError`: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR; the client then starts over with a full request.
        """
        uses_topic_ids = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (FULL_EPOCH, SESSIONLESS_EPOCH):
            # Also when the new request gets no session: the client has forgotten the old one, and
            # nothing else would remove it before it is evicted.
            self._drop(request.session_id)
            # The answer is the same with and without a session, so a client without one loses only
            # speed.
            targets = _requested(request, uses_topic_ids)
            session = None
            if request.session_epoch == FULL_EPOCH and targets:
                session = self._create(targets, uses_topic_ids, now)
            return FetchPlan(targets, session, incremental=False)
        session = self._resume(request, uses_topic_ids, now)
        if request.topics or request.forgotten_topics_data:
            self._update(session, request, now)
        # As in Kafka: an empty session would never have news, and only take a slot.
        if not session.targets:
            self._drop(session.id)
            return FetchPlan([], None, incremental=False)
        if session.news is not None:
            session.news.note_request()
        return FetchPlan(session.due(), session, incremental=True)

    def get(self, session_id: int) -> FetchSession | None:
        """Return a session, or `None` if it was dropped or never existed."""
        return self._sessions.get(session_id)

    def only_target(self, session_id: int) -> FetchTarget | None:
        """Return the target of a session with exactly one, otherwise `None`."""
        session = self._sessions.get(session_id)
        if session is None or len(session.targets) != 1:
            return None
        (target,) = session.targets.values()
        return target

    def _resume(self, request: FetchRequest, uses_topic_ids: bool, now: float) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # A lost or repeated request. Its changes may have been applied or not, so only a full
        # request makes both sides agree again (KIP-227).
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        # The client was up- or downgraded within a session: its partitions are filed under the
        # other kind of key (KIP-516).
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.advance(now)
        return session

    def _create(
        self, targets: list[FetchTarget], uses_topic_ids: bool, now: float
    ) -> FetchSession | None:
        size = sum(_memory(target.topic) for target in targets)
        if self._has_many_unknown(targets) or not self._free_capacity(1, size, now):
            return None
        # Random ids: a client that outlives the broker must not find another client's session.
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.below(_EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now)
        for target in targets:
            session.add(target)
        self._account.add(session_id, size)
        session.know_news(self._purgatory)
        return session

    def _update(self, session: FetchSession, request: FetchRequest, now: float) -> None:
        """Apply an incremental request. Raises `KafkaError` after dropping a too large session."""
        before = session.memory
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
            for partition in forgotten.partitions:
                session.remove(name, partition)
        fresh = _change(session, _requested(request, session.uses_topic_ids))
        if not fresh and not request.forgotten_topics_data:
            return  # it takes as much memory as before
        # Counted before the limit is checked: the memory exists already, and dropping the session
        # releases all of it.
        self._account.add(session.id, session.memory - before)
        session.know_news(self._purgatory)
        if self._has_many_unknown(fresh) or not self._free_capacity(0, 0, now):
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _has_many_unknown(self, targets: list[FetchTarget]) -> bool:
        if len(targets) <= UNKNOWN_MAX:
            return False
        unknown = sum(not self._is_known(target.topic, target.partition) for target in targets)
        return unknown > UNKNOWN_MAX

    def _free_capacity(self, slots: int, memory: int, now: float) -> bool:
        """Return whether so much more fits, if necessary after evicting unused sessions."""
        while (
            len(self._sessions) + slots > self._slots_max
            or self.memory + memory > self._memory_max
            or self._share.is_exceeded
            or not self._share.has(memory)
        ):
            oldest = min(
                self._sessions.values(), key=lambda session: session.last_used, default=None
            )
            # Sessions in use stay: with more clients than slots, each would otherwise evict another
            # one's session with every request, and all would send full requests plus the cost of
            # the cache.
            if oldest is None or now - oldest.last_used < self._evict_after_s:
                return False
            self._drop(oldest.id)
            self.evicted += 1
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._account.add(session_id, -session.memory)
            session.forget_news()
            session.targets.clear()


def _memory(topic: str | bytes) -> int:
    """Return an upper bound of the bytes of one partition of this topic in a session."""
    return _TARGET_BYTES + (len(topic) if isinstance(topic, bytes) else 4 * len(topic))


def _requested(request: FetchRequest, uses_topic_ids: bool) -> list[FetchTarget]:
    """Return the partitions of a request; the last entry of a repeated partition wins."""
    targets: dict[PartitionKey, FetchTarget] = {}
    for topic in request.topics:
        name: str | bytes = topic.topic_id if uses_topic_ids else topic.topic
        for entry in topic.partitions:
            targets[name, entry.partition] = FetchTarget(
                name,
                entry.partition,
                entry.fetch_offset,
                entry.partition_max_bytes,
                entry.current_leader_epoch,
                entry.last_fetched_epoch,
                entry.log_start_offset,
            )
    return list(targets.values())


def _change(session: FetchSession, entries: list[FetchTarget]) -> list[FetchTarget]:
    """Add or change partitions of a session; return the added ones."""
    fresh = []
    for entry in entries:
        target = session.targets.get((entry.topic, entry.partition))
        if target is None:
            session.add(entry)
            fresh.append(entry)
        else:
            # The sent offsets stay: the client still has them.
            target.fetch_offset = entry.fetch_offset
            target.max_bytes = entry.max_bytes
            target.current_leader_epoch = entry.current_leader_epoch
            target.last_fetched_epoch = entry.last_fetched_epoch
            target.log_start_offset = entry.log_start_offset
            session.note_change(target)
    return fresh


def topic_fields(topic: str | bytes) -> tuple[str, bytes]:
    """Return topic name and topic id for a response; the unused one is empty."""
    return (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
