"""Reads one partition for a Fetch request, of a consumer or of a follower."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.fetch_session import FetchTarget
from lakelog.replica.followers import FollowerId
from lakelog.replica.partition import Partition
from lakelog.storage.preparation import NotReady, Preparation
from lakelog.storage.segments.handles import LogSlice


class ReadWait:
    """The reader has to wait: for records, or until a thread has run `job`."""

    __slots__ = ("job",)

    def __init__(self, job: Preparation | None = None) -> None:
        self.job = job

    def release(self) -> None:
        """Abandon the job, if any."""
        if self.job is not None:
            self.job.abandon()


ReadResult = LogSlice | ReadWait | KafkaError
"""Records, a wait or an error. The caller releases a slice or a wait once, or hands it over."""
NO_RECORDS = ReadWait()
PartitionRead = tuple[FetchTarget, Partition | None, ReadResult]
"""The partition is None if this broker does not lead it, which is the error."""
READ_COMMITTED = 1
ZSTD_SINCE = 10


def read(
    partition: Partition,
    target: FetchTarget,
    bytes_left: int,
    *,
    committed: bool,
    min_one: bool = True,
    follower: FollowerId | None = None,
    fetched_at: float | None = None,
) -> ReadResult:
    """Read records of a partition of this broker. Nothing is raised.

    The slice has at most `bytes_left` bytes; `min_one` allows one larger batch (KIP-74). The errors
    are `NotLeaderError`, `DivergedLog` if the reader's log has diverged, and with the codes
    FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH (KIP-320), OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE and
    KAFKA_STORAGE_ERROR.

    committed: whether to read up to the last stable offset, with the aborted transactions.
    follower: reads up to the end of the log, and has everything before its offset. Also
        NOT_LEADER_OR_FOLLOWER, as `Partition.replica`.
    fetched_at: when the follower sent the request, on the monotonic clock; None if the partition
        has noted its position already. Noting it may commit records.
    """
    offset, bytes_max = target.fetch_offset, min(target.max_bytes, bytes_left)
    try:
        if follower is not None:
            partition.replica(*follower)
        if target.current_leader_epoch >= 0:
            partition.check_epoch(target.current_leader_epoch)
        if target.last_fetched_epoch >= 0:
            check_divergence(partition, offset, target.last_fetched_epoch)
        if follower is not None:
            end = partition.log.log_end_offset
            records = partition.read(offset, bytes_max, min_one=min_one, end=end)
            if fetched_at is not None:
                now_ms = int(fetched_at * 1000)
                partition.note_fetch(*follower, offset, now_ms, target.log_start_offset)
        elif committed:
            records = partition.read_committed(offset, bytes_max, min_one=min_one)
        else:
            records = partition.read(offset, bytes_max, min_one=min_one)
    except NotReady as first:
        return ReadWait(first.job)
    except KafkaError as error:
        return error
    return NO_RECORDS if records is None else records


class DivergedLog(KafkaError):  # noqa: N818 - an answer, raised like an error
    """The reader's last record is not in the log.

    A log that was truncated and grew again has other records at the same offsets, in a newer epoch.

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
