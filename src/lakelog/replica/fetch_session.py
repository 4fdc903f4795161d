"""Fetch sessions (KIP-227): what a consumer fetches is remembered between its requests.

A request names a session and an epoch:

    (0, -1)  no session: everything is in the request and in the response
    (x,  0)  a full request: session x is dropped and a new one is made
    (x, -1)  session x is closed; the request itself is answered without a session
    (x,  n)  incremental: the request lists only what changed, and so does the response

The cache only decides; it reads no log. `FetchSessions.begin` says which partitions to read, and
`FetchPlan.includes` which of the results a response must carry.

Sessions are bounded in number and in memory. Where there is no room a client gets none, and goes on
with full requests; where one outgrows the room it is dropped, and the client is told that it is not
found.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.state_budget import StateBudget
from lakelog.base.uuids import ZERO_UUID
from lakelog.protocol.fetch import FetchRequest
from lakelog.runtime.api import Random

SESSIONLESS_EPOCH = -1
FULL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
TOPIC_IDS_SINCE = 13
MEMORY_MAX = 64 * 1024 * 1024
"""Bytes that all sessions together may take."""
UNKNOWN_MAX = 100
"""Partitions of one request that are not here and are remembered all the same, as they may yet
come. A client that knows its topics has few of them."""
_TARGET_BYTES = 512

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
    """Without targets once it has been dropped."""

    __slots__ = ("epoch", "id", "last_used", "memory", "targets", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now
        self.targets: dict[PartitionKey, FetchTarget] = {}
        self.memory = 0

    def add(self, target: FetchTarget) -> None:
        self.targets[target.topic, target.partition] = target
        self.memory += _memory(target.topic)

    def remove(self, topic: str | bytes, partition: int) -> None:
        if self.targets.pop((topic, partition), None) is not None:
            self.memory -= _memory(topic)

    def replace(self, key: PartitionKey, target: FetchTarget) -> None:
        """Puts `target` into the place of the one of this partition, whose client it is told of."""
        former = self.targets[key]
        target.sent_high_watermark = former.sent_high_watermark
        target.sent_log_start_offset = former.sent_log_start_offset
        self.targets[key] = target

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

        error: not 0 for an error, or for a log that diverged. It forgets what was sent, so that the
        partition is reported again after it.
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
    """The broker's session cache, with a bounded number of slots and a bound on their memory.

    Args:
        is_known: whether there is such a partition here.
        slots_max: sessions held at once (Kafka's `max.incremental.fetch.session.cache.slots`).
        memory_max: bytes of all sessions, as counted by their partitions.
        budget: which they share with the state of coordinators.
        evict_after_s: a session unused for so long gives its slot to a new one.
    """

    def __init__(
        self,
        random: Random,
        is_known: Callable[[str | bytes, int], bool],
        *,
        slots_max: int = 1000,
        memory_max: int = MEMORY_MAX,
        budget: StateBudget,
        evict_after_s: float = 120.0,
    ) -> None:
        self._random = random
        self._is_known = is_known
        self._slots_max = slots_max
        self._memory_max = memory_max
        self._budget = budget
        self._evict_after_s = evict_after_s
        self._sessions: dict[int, FetchSession] = {}
        self.memory = 0
        self.evicted = 0
        """Sessions that nobody used any more and that made room for others."""

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
            self._drop(request.session_id)
            targets = _requested(request, uses_topic_ids)
            session = None
            if request.session_epoch == FULL_EPOCH and targets:
                session = self._create(targets, uses_topic_ids, now)
            return FetchPlan(targets, session, incremental=False)
        session = self._resume(request, uses_topic_ids, now)
        if request.topics or request.forgotten_topics_data:
            self._update(session, request, now)
        if not session.targets:
            self._drop(session.id)
            return FetchPlan([], None, incremental=False)
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def only_target(self, session_id: int) -> FetchTarget | None:
        """What the session fetches, if that is one partition."""
        session = self._sessions.get(session_id)
        if session is None or len(session.targets) != 1:
            return None
        (target,) = session.targets.values()
        return target

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

    def _create(
        self, targets: list[FetchTarget], uses_topic_ids: bool, now: float
    ) -> FetchSession | None:
        size = sum(_memory(target.topic) for target in targets)
        if self._has_many_unknown(targets) or not self._make_room(1, size, now):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.below(_EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now)
        for target in targets:
            session.add(target)
        self._note(size)
        return session

    def _update(self, session: FetchSession, request: FetchRequest, now: float) -> None:
        """Drops the session and raises `KafkaError` if there is no room for what it would be."""
        before = session.memory
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
            for partition in forgotten.partitions:
                session.remove(name, partition)
        fresh = _change(session, _requested(request, session.uses_topic_ids))
        self._note(session.memory - before)
        if self._has_many_unknown(fresh) or not self._make_room(0, 0, now):
            self._drop(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _has_many_unknown(self, targets: list[FetchTarget]) -> bool:
        if len(targets) <= UNKNOWN_MAX:
            return False
        unknown = sum(not self._is_known(target.topic, target.partition) for target in targets)
        return unknown > UNKNOWN_MAX

    def _make_room(self, slots: int, memory: int, now: float) -> bool:
        """Whether so much more fits, now or after the sessions that nobody uses have gone."""
        while (
            len(self._sessions) + slots > self._slots_max
            or self.memory + memory > self._memory_max
            or self._budget.total + memory > self._budget.bytes_max
        ):
            oldest = min(
                self._sessions.values(), key=lambda session: session.last_used, default=None
            )
            if oldest is None or now - oldest.last_used < self._evict_after_s:
                return False
            self._drop(oldest.id)
            self.evicted += 1
        return True

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._note(-session.memory)
            session.targets.clear()

    def _note(self, more: int) -> None:
        self.memory += more
        self._budget.total += more


def _memory(topic: str | bytes) -> int:
    """Bytes that one partition of this topic takes in a session, at most."""
    return _TARGET_BYTES + (len(topic) if isinstance(topic, bytes) else 4 * len(topic))


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


def _change(session: FetchSession, wanted: list[FetchTarget]) -> list[FetchTarget]:
    """Has the session fetch what is `wanted`; returns what it did not fetch before."""
    fresh = []
    for entry in wanted:
        target = session.targets.get((entry.topic, entry.partition))
        if target is None:
            session.add(entry)
            fresh.append(entry)
        else:
            target.fetch_offset = entry.fetch_offset
            target.max_bytes = entry.max_bytes
            target.current_leader_epoch = entry.current_leader_epoch
            target.last_fetched_epoch = entry.last_fetched_epoch
    return fresh


def topic_fields(topic: str | bytes) -> tuple[str, bytes]:
    """The name and the id of a response for a target: one of them is empty."""
    return (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
