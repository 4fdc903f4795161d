"""Reads a planned range from a log that may lose records meanwhile.

Retention and DeleteRecords remove the start of a range, a crash may cut off its end, and the topic
may be deleted. The caller decides how to handle a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lakelog.client.consumer.batches import Batch
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import (
    DataLossError,
    LogReplacedError,
    OptionError,
    RecordsRemovedError,
    TopicGoneError,
    TopicMissingError,
)
from lakelog.tables.topic.ranges import OffsetRange

OnLoss = Callable[[OffsetRange, DataLossError], None]
"""The decision about offsets that are lost. It raises an error, or returns to skip them.

Its second argument is the reason: a `RecordsRemovedError`, `LogReplacedError` or `TopicGoneError`.
"""


class Reading:
    """A range that is read to its end, except for offsets that `on_loss` skips.

    `batches` ends at a loss. `find_remaining` then determines which offsets can still be read, so
    callers alternate between the two.
    """

    def __init__(self, client: TopicClient, offset_range: OffsetRange, on_loss: OnLoss) -> None:
        self._client = client
        self._on_loss = on_loss
        self._unexplained: DataLossError | None = None
        self.remaining = offset_range

    def find_remaining(self) -> bool:
        """Reduce `remaining` to the offsets that the log holds; return whether there are any.

        Raises the errors of `on_loss`, `OptionError` if an open transaction blocks the range, and
        the error that ended `batches` if the log does not explain it.
        """
        left = self.remaining
        if left.size <= 0:
            return False
        try:
            kept = self._kept(left)
        except (TopicGoneError, TopicMissingError) as error:
            self._on_loss(left, TopicGoneError(f"{left}: {error}"))
            return False
        if self._unexplained is not None and kept == left:
            raise self._unexplained
        self.remaining = kept
        return kept.size > 0

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of `remaining`; advance `remaining` past them.

        Raises the errors of `on_loss`, and `KafkaError`; a loss without explanation is kept for
        `find_remaining`.
        """
        self._unexplained = None
        left = self.remaining
        position = left.start
        try:
            for header, batch in self._client.batches(left):
                yield header, batch
                # After the yield: a batch counts as read when the caller asks for the next one.
                position = min(header.last_offset + 1, left.end)
            position = left.end
        except (TopicGoneError, LogReplacedError) as error:
            self._on_loss(replace(left, start=position), error)
            position = left.end
        except DataLossError as error:
            self._unexplained = error
        self.remaining = replace(left, start=position)

    def _kept(self, left: OffsetRange) -> OffsetRange:
        """Return the part of `left` that the log holds, if `on_loss` skips the rest."""
        meta = self._client.describe([left.topic])[left.topic]
        if left.topic_id and meta.topic_id != left.topic_id:
            raise TopicGoneError("the topic was deleted and created again")
        partition = (left.topic, left.partition)
        # The id is checked first: offsets of another topic of this name mean nothing.
        log_start = self._client.earliest([partition])[partition]
        log_end = self._readable_end(left)
        start = min(max(log_start, left.start), left.end)
        end = max(min(log_end, left.end), start)
        if left.start < start:
            text = f"{left}: the log holds only [{log_start}, {log_end})"
            self._on_loss(replace(left, end=start), RecordsRemovedError(text))
        if end < left.end:
            was_there = left.leader_epoch >= 0
            what = "was cut and ends" if was_there else "ends"
            error = LogReplacedError(f"{left}: the log {what} at {log_end}")
            self._on_loss(replace(left, start=end), error)
        return replace(left, start=start, end=end)

    def _readable_end(self, left: OffsetRange) -> int:
        """Return the end of the readable part, or the end of the log if the log ends first.

        Raises `OptionError` if an open transaction begins within the range.
        """
        partition = (left.topic, left.partition)
        readable_end = self._client.latest([partition])[partition]
        if readable_end >= left.end:
            return readable_end
        log_end = self._client.log_end([partition])[partition]
        if log_end >= left.end:
            raise OptionError(
                f"{left}: the transaction at offset {readable_end} is still open. Retry after it "
                "has ended, or set the option kafka.isolation.level=read_uncommitted"
            )
        return log_end
