"""Detects that a reader has read another log, by the leader epoch of its last record (KIP-595).

A log that was truncated and grew again has other records at the same offsets, in a newer epoch.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition


class DivergedLog(KafkaError):  # noqa: N818 - an answer, raised like an error
    """The reader's last record is not in the log.

    epoch: the largest epoch that the reader and the log may share.
    end_offset: its exclusive end in the log.
    """

    def __init__(self, epoch: int, end_offset: int) -> None:
        super().__init__(ErrorCode.NONE)
        self.epoch = epoch
        self.end_offset = end_offset


def check_divergence(partition: Partition, fetch_offset: int, last_fetched_epoch: int) -> None:
    """Check that the log may contain the reader's last record, at `fetch_offset` - 1.

    last_fetched_epoch: the leader epoch of that record.

    Raises `DivergedLog` if it does not, and `KafkaError` (OFFSET_OUT_OF_RANGE) before the log start
    offset and for an epoch newer than the log's.
    """
    epoch, end = partition.epoch_end(last_fetched_epoch)
    # An epoch above the log's latest: the reader has read records that this log does not continue,
    # and no common offset is known. It starts over by its reset policy.
    if end < 0 or fetch_offset < partition.log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    # The reader's epoch does not exist here, or ended before the reader's last record: that record
    # was truncated.
    if epoch < last_fetched_epoch or end < fetch_offset:
        raise DivergedLog(epoch, end)
