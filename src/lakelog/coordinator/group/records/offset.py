"""The record of a committed offset in `__consumer_offsets`.

Sources: `OffsetCommitKey.json` and `OffsetCommitValue.json` in the jar kafka-group-coordinator
4.4.0. The topic id in version 4 keeps an offset from being returned for a new topic of the same
name.
"""

from __future__ import annotations

from typing import NamedTuple

from lakelog.wire.schema import Message, int32, int64, string, uuid


class OffsetCommitKey(Message, versions="0"):
    """The key of a committed offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset, of the next record to read. Times are milliseconds since the epoch."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


class OffsetRecord(NamedTuple):
    """A committed offset; None is a tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None
