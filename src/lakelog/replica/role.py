"""The role of one broker in a partition, at one leader epoch, and whether the partition is served.

Only the leader serves clients. A request that reaches another broker is answered with the current
leader (KIP-951), so that the client can go there without another Metadata request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError, is_shortage
from lakelog.base.events import event
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.metadata import LeaderIdAndEpoch
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log

logger = logging.getLogger(__name__)


class Role(NamedTuple):
    """The part of a broker in a partition from a change of leader or ISR to the next."""

    leader_epoch: int
    leader_id: int
    """The leader's node id; -1 if the partition has none."""
    is_leader: bool
    """Whether the broker itself is the leader."""
    isr: tuple[int, ...]
    """Node ids of the in-sync replicas, with the leader's."""
    followers: tuple[int, ...] = ()
    """Node ids of the other replicas, in sync or not, if this broker is the leader."""
    preferred: int = -1
    """Node id of the first replica, if this broker is the leader."""

    @classmethod
    def in_image(cls, partition: PartitionImage, node_id: int) -> Role:
        """Return the role of broker `node_id` as the metadata image states it."""
        leads = partition.leader == node_id
        followers = [replica for replica in partition.replicas if replica != node_id]
        assert not leads or len(followers) == len(partition.replicas) - 1, "a leader is a replica"
        return cls(
            partition.leader_epoch,
            partition.leader,
            leads,
            partition.isr,
            tuple(followers) if leads else (),
            partition.replicas[0] if leads else -1,
        )


NO_ROLE = Role(leader_epoch=-1, leader_id=-1, is_leader=False, isr=())
"""The role before the first one is known."""


class NotLeaderError(KafkaError):
    """NOT_LEADER_OR_FOLLOWER, with the current leader as far as this broker knows it."""

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        leader = f"broker {leader_id}" if leader_id >= 0 else "no broker"
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{leader} leads the partition in leader epoch {leader_epoch}",
        )
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


def current_leader(error: KafkaError) -> LeaderIdAndEpoch:
    """Return the leader that the error names, or an unknown one."""
    if isinstance(error, NotLeaderError):
        return LeaderIdAndEpoch(leader_id=error.leader_id, leader_epoch=error.leader_epoch)
    return LeaderIdAndEpoch()


class Availability:
    """The state of one partition: online, offline with a reason, or retired.

    A partition is online until its topic is deleted (retired) or its log fails (offline). Neither
    state is left again: only a restart, which recovers the log, brings an offline partition back.
    Damaged records alone do not take a partition offline, since the rest of the log can be read.
    """

    __slots__ = (
        "_log",
        "_note_shortage",
        "_on_failed",
        "_on_offline",
        "_reported_damage",
        "is_retired",
        "offline_reason",
    )

    def __init__(
        self,
        log: Log,
        on_offline: Callable[[], object],
        note_shortage: Callable[[OSError], object],
        on_failed: Callable[[], object],
    ) -> None:
        """
        on_failed: called when records are found damaged, and when the partition goes offline.
        on_offline: called whenever the partition goes offline, so that waiting requests fail.
        note_shortage: called with each error for which `is_shortage` is true.
        """
        self._log = log
        self._on_offline = on_offline
        self._note_shortage = note_shortage
        self._on_failed = on_failed
        self._reported_damage = ""
        self.is_retired = False
        """Whether the topic was deleted, or the broker is stopping."""
        self.offline_reason: str | None = None
        """Reason for users, or `None` unless the log has failed."""

    @property
    def is_online(self) -> bool:
        """Whether the partition serves requests."""
        return not self.is_retired and self.offline_reason is None

    def check(self) -> None:
        """Raise `KafkaError` unless the partition is online.

        UNKNOWN_TOPIC_OR_PARTITION if it is retired, KAFKA_STORAGE_ERROR if it is offline.
        """
        if self.is_retired:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)

    def take_offline(self, reason: str) -> None:
        """Stop serving the partition until a restart; log `partition_offline`."""
        assert reason, "an offline partition has a reason for its users"
        log = self._log
        logger.error(
            "partition %s-%d is offline: %s",
            log.topic,
            log.partition,
            reason,
            extra=event(
                "partition_offline", code="LL0304", topic=log.topic, partition=log.partition
            ),
        )
        self.offline_reason = reason
        self._on_offline()
        self._on_failed()

    def reading_error(self, error: OSError | CorruptLog) -> KafkaError:
        """Return the error for a failed read.

        CORRUPT_MESSAGE for damaged records, which leave the partition online; otherwise the result
        of `storage_error`.
        """
        if isinstance(error, OSError):
            return self.storage_error(error)
        if str(error) != self._reported_damage:
            # Consumers retry for ever; one log line for a damaged place is enough.
            self._reported_damage = str(error)
            log = self._log
            logger.error(
                "partition %s-%d: %s",
                log.topic,
                log.partition,
                error,
                extra=event(
                    "records_damaged", code="LL0602", topic=log.topic, partition=log.partition
                ),
            )
            self._on_failed()
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))

    def forget_damage(self) -> None:
        """Forget the damaged records: they have been removed."""
        self._reported_damage = ""

    def storage_error(self, error: OSError | CorruptLog) -> KafkaError:
        """Return the error for a failure of the log, and take the partition offline if it is final.

        `OutOfCapacityError`, which clients retry, for a shortage of space or file descriptors. Any
        other failure, and any failed flush, leaves the state of the log unknown: the partition goes
        offline and the error is KAFKA_STORAGE_ERROR. A retired partition has no files, so its
        failures mean nothing: UNKNOWN_TOPIC_OR_PARTITION.
        """
        if self.is_retired:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_shortage(error) and not self._log.broken:
            self._note_shortage(error)
            return OutOfCapacityError(error)
        self.take_offline(str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory failed")
