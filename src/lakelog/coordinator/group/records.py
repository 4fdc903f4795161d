"""The records of `__consumer_offsets`, in Kafka's formats: offsets, classic and consumer groups.

    key    int16 type, then the key       (types 0 and 1: offset, 2: group; never flexible)
    value  int16 version, then the value  (null: a tombstone)

Records are written as Apache Kafka 4.4 does: offsets as type 1 with value v4, or v1 if the commit
has its own expiry time; groups as value v3. Every version is read, and a record of an unknown type
is skipped (KIP-915). Static members (KIP-345) have their instance id since version 3. The topic id
in version 4 keeps an offset from being returned for a new topic of the same name.

Key types 3 to 8 and 16 are of consumer groups (KIP-848); every value has version 0 and is flexible.
A group is

    3   its epoch, and a hash of the topics that it subscribes to (KIP-1101)
    4   these topics; only older brokers write it, and this broker deletes it
    5   a member: its ids and its subscription
    6   the epoch of the target assignment, and when it was computed (KIP-1263)
    7   a member's part of the target assignment
    8   a member's assignment, and the partitions that it has to revoke
    16  the topics that match a regular expression

Sources: the schemas of the same names in the jar kafka-group-coordinator 4.4.0.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Any, NamedTuple

from lakelog.coordinator.shard import Result
from lakelog.wire import schema as wire
from lakelog.wire.codec import decode, encode
from lakelog.wire.primitives import WireError


class GroupMetadataKey(wire.Message, versions="0"):
    """The key of a classic group."""

    group: str = wire.string()


class MemberMetadata(wire.Struct):
    """A member of a generation. Timeouts are milliseconds."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.string("3+", nullable="3+", default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    rebalance_timeout: int = wire.int32("1+", default=-1)
    session_timeout: int = wire.int32()
    subscription: wire.Buffer = wire.binary()
    assignment: wire.Buffer = wire.binary()


class GroupMetadataValue(wire.Message, versions="0-4", flexible="4+"):
    """A generation of a classic group with its assignment."""

    protocol_type: str = wire.string()
    generation: int = wire.int32()
    protocol: str | None = wire.string(nullable="0+")
    leader: str | None = wire.string(nullable="0+")
    current_state_timestamp: int = wire.int64("2+", default=-1)
    members: list[MemberMetadata] = wire.array(MemberMetadata)


class GroupRecord(NamedTuple):
    """The newest generation of a classic group; None is a tombstone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


class OffsetCommitKey(wire.Message, versions="0"):
    """The key of a committed offset."""

    group: str = wire.string()
    topic: str = wire.string()
    partition: int = wire.int32()


class OffsetCommitValue(wire.Message, versions="0-4", flexible="4+"):
    """A committed offset, of the next record to read. Times are milliseconds since the epoch."""

    offset: int = wire.int64()
    leader_epoch: int = wire.int32("3+", default=-1)
    metadata: str = wire.string()
    commit_timestamp: int = wire.int64()
    expire_timestamp: int = wire.int64("1", default=-1)
    topic_id: bytes = wire.uuid("4+", tag=0)


class OffsetRecord(NamedTuple):
    """A committed offset; None is a tombstone."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


class ConsumerGroupMetadataKey(wire.Message, versions="0"):
    group_id: str = wire.string()


class ConsumerGroupMetadataValue(wire.Message, versions="0", flexible="0+"):
    epoch: int = wire.int32()
    metadata_hash: int = wire.int64(tag=0)


class ConsumerGroupPartitionMetadataKey(wire.Message, versions="0"):
    group_id: str = wire.string()


class PartitionMetadata(wire.Struct):
    partition: int = wire.int32()
    racks: list[str] = wire.array(wire.string)


class TopicMetadata(wire.Struct):
    topic_id: bytes = wire.uuid()
    topic_name: str = wire.string()
    num_partitions: int = wire.int32()
    partition_metadata: list[PartitionMetadata] = wire.array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(wire.Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = wire.array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(wire.Message, versions="0"):
    group_id: str = wire.string()
    member_id: str = wire.string()


class ClassicProtocol(wire.Struct):
    name: str = wire.string()
    metadata: wire.Buffer = wire.binary()


class ClassicMemberMetadata(wire.Struct):
    """Additional fields of a member that uses the classic protocol."""

    session_timeout_ms: int = wire.int32()
    supported_protocols: list[ClassicProtocol] = wire.array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(wire.Message, versions="0", flexible="0+"):
    instance_id: str | None = wire.string(nullable="0+")
    rack_id: str | None = wire.string(nullable="0+")
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.string)
    subscribed_topic_regex: str | None = wire.string(nullable="0+")
    rebalance_timeout_ms: int = wire.int32(default=-1)
    server_assignor: str | None = wire.string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = wire.struct(
        ClassicMemberMetadata, nullable="0+", tag=0
    )
    """Null is written explicitly."""


class ConsumerGroupTargetAssignmentMetadataKey(wire.Message, versions="0"):
    group_id: str = wire.string()


class ConsumerGroupTargetAssignmentMetadataValue(wire.Message, versions="0", flexible="0+"):
    assignment_epoch: int = wire.int32()
    assignment_timestamp: int = wire.int64(tag=0)
    """Milliseconds since the epoch; 0 means that the next assignment need not wait."""


class ConsumerGroupTargetAssignmentMemberKey(wire.Message, versions="0"):
    group_id: str = wire.string()
    member_id: str = wire.string()


class TopicPartition(wire.Struct):
    topic_id: bytes = wire.uuid()
    partitions: list[int] = wire.array(wire.int32)


class ConsumerGroupTargetAssignmentMemberValue(wire.Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = wire.array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(wire.Message, versions="0"):
    group_id: str = wire.string()
    member_id: str = wire.string()


class TopicPartitions(wire.Struct):
    topic_id: bytes = wire.uuid()
    partitions: list[int] = wire.array(wire.int32)
    assignment_epochs: list[int] | None = wire.array(wire.int32, nullable="0+", tag=0)
    """The epoch in which each partition was assigned (KIP-1251), one for each partition; null in
    records of older brokers."""


class ConsumerGroupCurrentMemberAssignmentValue(wire.Message, versions="0", flexible="0+"):
    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    assigned_partitions: list[TopicPartitions] = wire.array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = wire.array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(wire.Message, versions="0"):
    group_id: str = wire.string()
    regular_expression: str = wire.string()


class ConsumerGroupRegularExpressionValue(wire.Message, versions="0", flexible="0+"):
    topics: list[str] = wire.array(wire.string)
    version: int = wire.int64()
    """Version of the metadata with these topics."""
    timestamp: int = wire.int64()


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

CONSUMER_GROUP_RECORDS: dict[int, tuple[type[wire.Message], type[wire.Message]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Classes of key and value by the type that the key begins with."""

CONSUMER_GROUP_KEY_TYPES = {key: kind for kind, (key, _) in CONSUMER_GROUP_RECORDS.items()}


class ConsumerGroupRecord(NamedTuple):
    """A record; `value` has the class that belongs to the key's class, or is None, a tombstone."""

    key: ConsumerGroupKey
    value: wire.Message | None


_INT16 = Format(">h")

_LEGACY_OFFSET_COMMIT = 0
_OFFSET_COMMIT = 1
_GROUP_METADATA = 2
_OFFSET_VALUE_VERSION = 4
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3

_MEMBERS_MAX = 1_000_000

_CLASSES: dict[int, tuple[type[Any], type[wire.Message], type[wire.Message]]] = {
    _LEGACY_OFFSET_COMMIT: (OffsetRecord, OffsetCommitKey, OffsetCommitValue),
    _OFFSET_COMMIT: (OffsetRecord, OffsetCommitKey, OffsetCommitValue),
    _GROUP_METADATA: (GroupRecord, GroupMetadataKey, GroupMetadataValue),
    **{kind: (ConsumerGroupRecord, *both) for kind, both in CONSUMER_GROUP_RECORDS.items()},
}
"""Classes of record, key and value by the type that the key begins with."""

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
    if kind not in _CLASSES:
        return None
    record_class, key_class, value_class = _CLASSES[kind]
    decoded = None
    if value is not None:
        decoded = decode(value_class, value, _version(value), 2, max_elements=_MEMBERS_MAX)
    if isinstance(decoded, GroupMetadataValue):
        for member in decoded.members:
            member.subscription = bytes(member.subscription)
            member.assignment = bytes(member.assignment)
    record: Record = record_class(decode(key_class, key, 0, 2), decoded)
    return record


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise WireError(f"group record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version
