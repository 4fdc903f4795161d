"""The fetches of a follower from one leader, without I/O.

A request names the changes since the last one in a fetch session (KIP-227): partitions that were
added, appended to, or truncated. So a thousand idle partitions cost nothing. A partition that
failed rests for a moment, because its error passes with the next change of the metadata.

A follower asks with the leader epoch that it knows and with the epoch of its last record. The
leader answers a diverging epoch instead of records if the logs differ, and the follower truncates
(KIP-595). It is asked again until the epochs agree (KIP-279).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from lakelog.replica.partition import Partition

PARTITION_BYTES_MAX = 1 << 20
"""Of one partition in a response, unless its first batch is larger (`replica.fetch.max.bytes`)."""
RESPONSE_BYTES_MAX = 10 << 20
"""Of all partitions in a response (`replica.fetch.response.max.bytes`)."""
WAIT_MS = 500
"""How long a leader without new records waits (`replica.fetch.wait.max.ms`)."""
FLUSH_WAIT_MS = 10
"""As `WAIT_MS`, while a partition is left out because its records are being flushed."""
REST_S = 0.2
_NO_SESSION, _FULL = 0, 0
_EPOCH_MAX = 2**31 - 1

Key = tuple[bytes, int]


class Position(NamedTuple):
    """The state of one partition in a request."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class Fetched(NamedTuple):
    """One partition of a response, and the position that it answers."""

    partition: Partition
    position: Position
    data: PartitionData


def position_of(partition: Partition) -> Position:
    """Return the position from which a follower has to go on."""
    log = partition.log
    end = log.log_end_offset
    # Without a record nothing can diverge, and -1 asks for no comparison.
    last = log.leader_epochs.epoch_of(end - 1) if end > log.log_start_offset else -1
    return Position(partition.leader_epoch, end, last, log.log_start_offset)


class LeaderSession:
    """The partitions that are fetched from one leader, and the session with it."""

    def __init__(self, node_id: int) -> None:
        """node_id: of this broker."""
        self._node_id = node_id
        self._followed: dict[Key, Partition] = {}
        self._resting: dict[Key, float] = {}
        """The time at which each of these is due again."""
        self._flushing: dict[Key, None] = {}
        """Partitions whose records have to be flushed before the leader may learn of them."""
        self._unflushed: set[Key] = set()
        """Partitions whose records need no flush, when they were added."""
        self._moved: dict[Key, None] = {}
        """Partitions whose position may differ from the leader's view of it."""
        self._session_id, self._epoch = _NO_SESSION, _FULL
        self._in_session: dict[Key, Position] = {}
        """The session as the leader knows it, when it has got the last request."""
        self._dropped: set[Key] = set()
        """Partitions that the next request removes from the session."""

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Fetch this partition from the next request on."""
        self._followed[partition.key] = partition
        self._resting.pop(partition.key, None)
        self._flushing.pop(partition.key, None)
        if not partition.watermark.by_flush:
            self._unflushed.add(partition.key)
        self._moved[partition.key] = None

    def remove(self, partition: Partition) -> None:
        """Do not fetch this partition any more."""
        self._followed.pop(partition.key, None)
        self._resting.pop(partition.key, None)
        self._flushing.pop(partition.key, None)
        self._unflushed.discard(partition.key)
        self._drop(partition.key)

    def are_others_unflushed(self, waiting: Iterable[Partition]) -> bool:
        """Return whether other partitions need no flush, and should not wait for these."""
        self._unflushed.difference_update(partition.key for partition in waiting)
        return bool(self._unflushed)

    def rest(self, partition: Partition, now: float) -> None:
        """Leave the partition out of requests for a moment."""
        if partition.key in self._followed:
            self._flushing.pop(partition.key, None)
            self._resting[partition.key] = now + REST_S
            self._drop(partition.key)

    def _drop(self, key: Key) -> None:
        self._moved.pop(key, None)
        if self._in_session.pop(key, None) is not None:
            self._dropped.add(key)

    def request(self, broker_epoch: int, now: float) -> FetchRequest | None:
        """Return the next request, or None if no partition can be fetched now.

        It costs as much as partitions have moved, not as many as are followed. A partition whose
        records have to be flushed first is left out: the leader takes the position for durable.

        broker_epoch: of this broker's registration.
        now: of the monotonic clock, in seconds.
        """
        for key in [key for key, due in self._resting.items() if due <= now]:
            del self._resting[key]
            self._moved[key] = None
        self._moved |= self._flushing
        self._flushing = {}
        changed = {}
        for key in list(self._moved):
            assert key not in self._resting, "a resting partition is not due"
            partition = self._followed[key]
            if not partition.watermark.is_written:
                self._drop(key)
                self._flushing[key] = None
                continue
            position = position_of(partition)
            if self._in_session.get(key) != position:
                changed[key] = self._in_session[key] = position
        self._moved = {}
        # A request without partitions would make the leader wait for nothing.
        if not self._in_session:
            return None
        # A partition that was dropped and added again since the last request is named as changed
        # only: a request must not forget a partition that it adds.
        forgotten, self._dropped = self._dropped - changed.keys(), set()
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=FLUSH_WAIT_MS if self._flushing else WAIT_MS,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES_MAX,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_topics(changed),
            forgotten_topics_data=_forgotten(forgotten),
        )

    def lose_session(self) -> None:
        """Begin with a full request again: the leader may not have seen the last one."""
        self._session_id, self._epoch = _NO_SESSION, _FULL
        self._in_session, self._dropped = {}, set()
        self._flushing = {}
        self._moved = dict.fromkeys(key for key in self._followed if key not in self._resting)

    def on_response(self, response: FetchResponse) -> Iterator[Fetched]:
        """Yield the partitions that have news, if they are still followed."""
        if response.error_code != ErrorCode.NONE:
            self.lose_session()
            return
        sent = self._in_session
        self._session_id = response.session_id
        # Epoch 0 would begin a new session, so the number after the greatest is 1 (KIP-227).
        self._epoch = self._epoch % _EPOCH_MAX + 1
        # The leader has no capacity for the session: each request is a full one until it has.
        if not response.session_id:
            self.lose_session()
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                partition, position = self._followed.get(key), sent.get(key)
                if partition is not None and position is not None:
                    assert position.leader_epoch <= partition.leader_epoch, "an epoch never falls"
                    self._moved[key] = None
                    yield Fetched(partition, position, data)


def _topics(changed: dict[Key, Position]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, index), position in changed.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=position.log_start,
                partition_max_bytes=PARTITION_BYTES_MAX,
            )
        )
    return list(topics.values())


def _forgotten(keys: set[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in sorted(keys):
        topic = topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
        topic.partitions.append(index)
    return list(topics.values())
