"""The records of `__consumer_offsets`, in Kafka's formats.

    key    int16 type, then the key       (types 0 and 1: offset, 2: group; never flexible)
    value  int16 version, then the value  (null: a tombstone)

Other types belong to consumer groups: `consumer/records.py`.

Records are written as Apache Kafka 4.4 does: offsets as type 1 with value v4, or v1 if the commit
has its own expiry time; groups as value v3. Every version is read. Sources: `OffsetCommitKey.json`,
`OffsetCommitValue.json`, `GroupMetadataKey.json`, `GroupMetadataValue.json` in the jar
kafka-group-coordinator 4.4.0, and KIP-915 for skipping unknown types.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Any, NamedTuple

from lakelog.coordinator.group.consumer.records import (
    CONSUMER_GROUP_KEY_TYPES,
    CONSUMER_GROUP_RECORDS,
    ConsumerGroupRecord,
)
from lakelog.coordinator.shard import Result
from lakelog.wire.codec import decode, encode
from lakelog.wire.errors import WireError
from lakelog.wire.schema import (
    Buffer,
    Message,
    Struct,
    array,
    binary,
    int32,
    int64,
    string,
    uuid,
)

_INT16 = Format(">h")

_LEGACY_OFFSET_COMMIT = 0
_OFFSET_COMMIT = 1
_GROUP_METADATA = 2
_OFFSET_VALUE_VERSION = 4
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3

_MEMBERS_MAX = 1_000_000


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


class GroupMetadataKey(Message, versions="0"):
    """The key of a classic group."""

    group: str = string()


class MemberMetadata(Struct):
    """A member of a generation. Timeouts are milliseconds."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32()
    subscription: Buffer = binary()
    assignment: Buffer = binary()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A generation of a classic group with its assignment."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


class OffsetRecord(NamedTuple):
    """A committed offset; None is a tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class GroupRecord(NamedTuple):
    """The newest generation of a classic group; None is a tombstone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


Record = OffsetRecord | GroupRecord | ConsumerGroupRecord
Decision = Result[Record]


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    if isinstance(record, ConsumerGroupRecord):
        return _encode(record, CONSUMER_GROUP_KEY_TYPES[type(record.key)], 0)
    if isinstance(record, GroupRecord):
        return _encode(record, _GROUP_METADATA, _GROUP_VALUE_VERSION)
    expires = record.value is not None and record.value.expire_timestamp != -1
    version = _EXPIRING_OFFSET_VALUE_VERSION if expires else _OFFSET_VALUE_VERSION
    return _encode(record, _OFFSET_COMMIT, version)


def _encode(record: Record, kind: int, version: int) -> tuple[bytes, bytes | None]:
    key = _INT16.pack(kind) + encode(record.key, 0)
    if record.value is None:
        return key, None
    return key, _INT16.pack(version) + encode(record.value, version)


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """Return the record, or None if its type is unknown. Raises `WireError` if it is malformed."""
    kind = _version(key)
    if kind in (_LEGACY_OFFSET_COMMIT, _OFFSET_COMMIT):
        offset_key = decode(OffsetCommitKey, key, 0, 2)
        return OffsetRecord(offset_key, None if value is None else _decode_offset(value))
    if kind == _GROUP_METADATA:
        group_key = decode(GroupMetadataKey, key, 0, 2)
        return GroupRecord(group_key, None if value is None else _decode_group(value))
    if kind in CONSUMER_GROUP_RECORDS:
        return _decode_consumer(kind, key, value)
    return None


def _decode_consumer(kind: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    key_class, value_class = CONSUMER_GROUP_RECORDS[kind]
    decoded_key: Any = decode(key_class, key, 0, 2)
    if value is None:
        return ConsumerGroupRecord(decoded_key, None)
    decoded = decode(value_class, value, _version(value), 2, max_elements=_MEMBERS_MAX)
    return ConsumerGroupRecord(decoded_key, decoded)


def _decode_offset(value: bytes) -> OffsetCommitValue:
    return decode(OffsetCommitValue, value, _version(value), 2)


def _decode_group(value: bytes) -> GroupMetadataValue:
    group = decode(GroupMetadataValue, value, _version(value), 2, max_elements=_MEMBERS_MAX)
    for member in group.members:
        member.subscription = bytes(member.subscription)
        member.assignment = bytes(member.assignment)
    return group


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise WireError(f"group record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version
