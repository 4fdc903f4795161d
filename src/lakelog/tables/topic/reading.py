"""One planned range as a task reads it, from a log that may lose records meanwhile.

Retention and DeleteRecords remove the begin of a range, a crash may cut off its end, and the topic
may be deleted. What a loss means is the caller's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lakelog.client.isolation import Batch
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
"""Decides about offsets that can no longer be read, given the reason: a `RecordsRemovedError`,
`LogReplacedError` or `TopicGoneError`. Raises an error, or returns to continue without them."""


class Reading:
    """A range that is read to its end, except for what `on_loss` accepts to miss.

    A loss ends `batches` after what was read before it. The next `find_remaining` determines what
    is left.
    """

    def __init__(self, client: TopicClient, wanted: OffsetRange, on_loss: OnLoss) -> None:
        self._client = client
        self._on_loss = on_loss
        self._unexplained: DataLossError | None = None
        self.remaining = wanted

    def find_remaining(self) -> bool:
        """Set `remaining` to what the log holds of it; return whether that is anything.

        Raises what `on_loss` raises, `OptionError` for records of an open transaction, and the
        error that ended `batches` if the log does not show why.
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
        """Yield the batches of `remaining`, which then begins after the last of them."""
        self._unexplained = None
        left = self.remaining
        position = left.start
        try:
            for header, batch in self._client.batches(left):
                yield header, batch
                position = min(header.last_offset + 1, left.end)
            position = left.end
        except (TopicGoneError, LogReplacedError) as error:
            self._on_loss(replace(left, start=position), error)
            position = left.end
        except DataLossError as error:
            self._unexplained = error
        self.remaining = replace(left, start=position)

    def _kept(self, left: OffsetRange) -> OffsetRange:
        """The part of `left` that the log holds, after `on_loss` accepted to miss the rest."""
        meta = self._client.describe([left.topic])[left.topic]
        if left.topic_id and meta.topic_id != left.topic_id:
            raise TopicGoneError("the topic was deleted and created again")
        partition = (left.topic, left.partition)
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
        """Where reading ends, or where the log ends if that is before the range does.

        Raises `OptionError` if a transaction that is still open ends it within the range.
        """
        partition = (left.topic, left.partition)
        readable_end = self._client.latest([partition])[partition]
        if readable_end >= left.end:
            return readable_end
        log_end = self._client.log_end([partition])[partition]
        if log_end >= left.end:
            raise OptionError(
                f"{left}: the transaction at offset {readable_end} is still open. Read again when "
                "it has ended, or set the option kafka.isolation.level=read_uncommitted"
            )
        return log_end
