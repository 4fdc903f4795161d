"""Whether a partition may be served, and the protocol errors for failures of its log.

A partition is online until its topic is deleted (retired) or its log fails (offline). Neither state
is left again: only a restart, which recovers the log, brings an offline partition back. Damaged
records alone do not take a partition offline, since the rest of the log can be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError, is_shortage
from lakelog.base.events import event
from lakelog.storage.errors import CorruptLog
from lakelog.storage.log import Log

logger = logging.getLogger(__name__)


class Availability:
    """The state of one partition: online, offline with a reason, or retired."""

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
