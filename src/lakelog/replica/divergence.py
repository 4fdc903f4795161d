"""Whether a reader has seen the log that is here, by the leader epoch of its last record (KIP-595).

A log that lost its tail and grew again has other records under the same offsets.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.partition import Partition


class DivergedLog(KafkaError):  # noqa: N818 - an answer that takes the way of errors
    """The reader's last record is not in the log: the largest epoch both may have, and its end."""

    def __init__(self, epoch: int, end_offset: int) -> None:
        super().__init__(ErrorCode.NONE)
        self.epoch = epoch
        self.end_offset = end_offset


def check_divergence(partition: Partition, fetch_offset: int, last_fetched_epoch: int) -> None:
    """Checks that the record before `fetch_offset` may be the reader's, of `last_fetched_epoch`.

    Raises `DivergedLog` if it is not, and OFFSET_OUT_OF_RANGE before the start of the log and for
    an epoch that this log has never come to.
    """
    epoch, end = partition.epoch_end(last_fetched_epoch)
    if end < 0 or fetch_offset < partition.log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end < fetch_offset:
        raise DivergedLog(epoch, end)
