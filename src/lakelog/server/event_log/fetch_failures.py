"""Log lines about partitions that a follower cannot copy: one when it begins, one at the end.

For a moment after every election, leaders and followers know different leader epochs. Such a
failure has a line only if it lasts.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Clock
from lakelog.server.event_log.log_window import LogWindow, left_out_text

logger = logging.getLogger(__name__)

LASTS_S = 5.0
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(slots=True)
class _Failure:
    since: float
    has_line: bool = False


class FetchFailures:
    """The partitions that cannot be copied from one leader."""

    def __init__(self, leader_id: int, clock: Clock) -> None:
        self._leader_id = leader_id
        self._clock = clock
        self._window = LogWindow(clock)
        self._failures: dict[Partition, _Failure] = {}

    def forget(self, partition: Partition) -> None:
        """Forget a partition that is not copied from this leader any more."""
        self._failures.pop(partition, None)

    def succeeded(self, partition: Partition) -> None:
        """Note that the partition is copied."""
        failure = self._failures.pop(partition, None)
        if failure is not None and failure.has_line:
            topic, index = partition.topic, partition.index
            logger.info(
                "partition %s-%d: copied from broker %d again",
                topic,
                index,
                self._leader_id,
                extra=event(
                    "replica_fetch_resumed", topic=topic, partition=index, leader=self._leader_id
                ),
            )

    def failed(self, partition: Partition, error: Exception, *, is_bug: bool = False) -> None:
        """Note that the partition could not be copied; the line of a bug has a traceback."""
        now = self._clock.monotonic()
        failure = self._failures.setdefault(partition, _Failure(now))
        is_passing = getattr(error, "code", None) in _PASSING and now - failure.since < LASTS_S
        if failure.has_line or is_passing:
            return
        left_out = self._window.admit()
        if left_out is None:
            return
        failure.has_line = True
        topic, index = partition.topic, partition.index
        logger.warning(
            "partition %s-%d: cannot copy it from broker %d: %s%s",
            topic,
            index,
            self._leader_id,
            repr(error) if is_bug else error,
            left_out_text(left_out),
            exc_info=error if is_bug else None,
            extra=event(
                "replica_fetch_failed", topic=topic, partition=index, leader=self._leader_id
            ),
        )
