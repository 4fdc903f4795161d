"""Fetch sessions (KIP-227): what a consumer fetches is remembered between its requests.

A request names a session and an epoch:

    (0, -1)  no session: everything is in the request and in the response
    (x,  0)  a full request: session x is dropped and a new one is made
    (x, -1)  session x is closed; the request itself is answered without a session
    (x,  n)  incremental: the request lists only what changed, and so does the response

The cache only decides; it reads no log. `FetchSessions.begin` says which partitions to read, and
`FetchPlan.includes` which of the results a response must carry.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import ZERO_UUID
from lakelog.protocol.fetch import FetchRequest
from lakelog.runtime.api import Random

SESSIONLESS_EPOCH = -1
FULL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
TOPIC_IDS_SINCE = 13

PartitionKey = tuple[str | bytes, int]


class FetchTarget:
    """One partition that a consumer fetches, and what it was last told about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
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
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1


class FetchSession:
    __slots__ = ("epoch", "id", "last_used", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now
        self.targets: dict[PartitionKey, FetchTarget] = {}

    def advance(self, now: float) -> None:
        """A request of the present epoch is being answered."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        self.last_used = now


class FetchPlan:
    """What one request reads. `session` is none if the response is complete in itself."""

    __slots__ = ("incremental", "session", "targets")

    def __init__(
        self, targets: list[FetchTarget], session: FetchSession | None, incremental: bool
    ) -> None:
        self.targets = targets
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id

    def includes(
        self, target: FetchTarget, error: int, size: int, high_watermark: int, log_start: int
    ) -> bool:
        """Whether a response must carry this result, which is noted as sent if so.

        An error forgets what was sent, so that the partition is reported again after it.
        """
        if self.session is None:
            return True
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
        if size and self.incremental:
            self._rotate(target)
        return news or not self.incremental

    def _rotate(self, target: FetchTarget) -> None:
        """Puts a served partition last, so that the byte limit starves none."""
        assert self.session is not None
        key = (target.topic, target.partition)
        if self.session.targets.pop(key, None) is not None:
            self.session.targets[key] = target


class FetchSessions:
    """The broker's session cache, with a bounded number of slots.

    Args:
        slots_max: sessions held at once (Kafka's `max.incremental.fetch.session.cache.slots`).
        evict_after_s: a session unused for so long gives its slot to a new one.
    """

    def __init__(
        self, random: Random, *, slots_max: int = 1000, evict_after_s: float = 120.0
    ) -> None:
        self._random = random
        self._slots_max = slots_max
        self._evict_after_s = evict_after_s
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, now: float) -> FetchPlan:
        """What to read for `request`; `now` is on the monotonic clock.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
                FETCH_SESSION_TOPIC_ID_ERROR; the client starts over with a full request.
        """
        uses_topic_ids = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (FULL_EPOCH, SESSIONLESS_EPOCH):
            self._sessions.pop(request.session_id, None)
            targets = _requested(request, uses_topic_ids)
            session = None
            if request.session_epoch == FULL_EPOCH and targets:
                session = self._create(uses_topic_ids, now)
            if session is not None:
                session.targets = {(t.topic, t.partition): t for t in targets}
            return FetchPlan(targets, session, incremental=False)
        session = self._resume(request, uses_topic_ids, now)
        _update(session, request, uses_topic_ids)
        if not session.targets:
            del self._sessions[session.id]
            return FetchPlan([], None, incremental=False)
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def of_one(self, session_id: int, epoch: int, key: PartitionKey) -> FetchSession | None:
        """The session that awaits `epoch`, if it fetches this partition and no other."""
        session = self._sessions.get(session_id)
        if (
            session is None
            or session.epoch != epoch
            or len(session.targets) != 1
            or key not in session.targets
        ):
            return None
        return session

    def _resume(self, request: FetchRequest, uses_topic_ids: bool, now: float) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.advance(now)
        return session

    def _create(self, uses_topic_ids: bool, now: float) -> FetchSession | None:
        if len(self._sessions) >= self._slots_max and not self._evict(now):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.below(_EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now)
        return session

    def _evict(self, now: float) -> bool:
        oldest = min(self._sessions.values(), key=lambda session: session.last_used)
        if now - oldest.last_used < self._evict_after_s:
            return False
        del self._sessions[oldest.id]
        return True


def _requested(request: FetchRequest, uses_topic_ids: bool) -> list[FetchTarget]:
    """The partitions of a request, each once: of a repeated one the last entry counts."""
    targets = []
    for topic in request.topics:
        name: str | bytes = topic.topic_id if uses_topic_ids else topic.topic
        for entry in topic.partitions:
            target = FetchTarget(
                name,
                entry.partition,
                entry.fetch_offset,
                entry.partition_max_bytes,
                entry.current_leader_epoch,
                entry.last_fetched_epoch,
            )
            targets.append(target)
    if len(targets) > 1:
        return list({(t.topic, t.partition): t for t in targets}.values())
    return targets


def _update(session: FetchSession, request: FetchRequest, uses_topic_ids: bool) -> None:
    for forgotten in request.forgotten_topics_data:
        name: str | bytes = forgotten.topic_id if uses_topic_ids else forgotten.topic
        for partition in forgotten.partitions:
            session.targets.pop((name, partition), None)
    for fresh in _requested(request, uses_topic_ids):
        target = session.targets.setdefault((fresh.topic, fresh.partition), fresh)
        if target is not fresh:
            target.fetch_offset = fresh.fetch_offset
            target.max_bytes = fresh.max_bytes
            target.current_leader_epoch = fresh.current_leader_epoch
            target.last_fetched_epoch = fresh.last_fetched_epoch


def topic_fields(topic: str | bytes) -> tuple[str, bytes]:
    """The name and the id of a response for a target: one of them is empty."""
    return (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
