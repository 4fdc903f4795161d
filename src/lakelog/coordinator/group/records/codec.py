"""Encodes and decodes the records of `__consumer_offsets`, in Kafka's formats.

    key    int16 type, then the key       (types 0 and 1: offset, 2: group; never flexible)
    value  int16 version, then the value  (null: a tombstone)

Other types belong to consumer groups (`consumer`).

Records are written as Apache Kafka 4.4 does: offsets as type 1 with value v4, or v1 if the commit
has its own expiry time; groups as value v3. Every version is read, and a record of an unknown type
is skipped (KIP-915).
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Any

from lakelog.coordinator.group.records.classic import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
)
from lakelog.coordinator.group.records.consumer import (
    CONSUMER_GROUP_KEY_TYPES,
    CONSUMER_GROUP_RECORDS,
    ConsumerGroupRecord,
)
from lakelog.coordinator.group.records.offset import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
)
from lakelog.coordinator.shard import Result
from lakelog.wire.codec import decode, encode
from lakelog.wire.errors import WireError

_INT16 = Format(">h")

_LEGACY_OFFSET_COMMIT = 0
_OFFSET_COMMIT = 1
_GROUP_METADATA = 2
_OFFSET_VALUE_VERSION = 4
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3

_MEMBERS_MAX = 1_000_000


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
