"""Validation of a batch that a follower has fetched from its leader.

The leader has validated the records. A follower checks the bytes and their place in the log, so
that neither a damaged transfer nor a confused leader can damage its copy.
"""

from __future__ import annotations

from lakelog.records.batch import MAGIC, BatchHeader, CorruptRecord, check_crc, read_header
from lakelog.runtime.api import Buffer


def read_fetched(batch: Buffer, end_offset: int, latest_epoch: int) -> BatchHeader:
    """Return the header of a batch that may follow at `end_offset`, the end of the log.

    `latest_epoch` is the leader epoch of the log's last batch, -1 for an empty log.

    Raises `CorruptRecord` for a batch that is torn or altered, has another magic, begins below the
    end of the log, or is of an older leader epoch than the batch before it.
    """
    header = read_header(batch)
    if header.size != len(batch) or header.magic != MAGIC or not check_crc(batch, 0, header):
        raise CorruptRecord(f"the batch at offset {header.base_offset} arrived damaged")
    if header.base_offset < end_offset or header.last_offset_delta < 0:
        raise CorruptRecord(
            f"a batch of offsets {header.base_offset} to {header.last_offset} "
            f"where the log ends at {end_offset}"
        )
    if header.partition_leader_epoch < max(latest_epoch, 0):
        raise CorruptRecord(
            f"the batch at offset {header.base_offset} is of leader epoch "
            f"{header.partition_leader_epoch}, after records of epoch {latest_epoch}"
        )
    return header
