"""The records of consumer groups in `__consumer_offsets` (KIP-848), in Kafka's formats.

Key types 3 to 8 and 16; every value has version 0 and is flexible. A group is

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

from typing import NamedTuple

from lakelog.wire.schema import (
    Buffer,
    Message,
    Struct,
    array,
    binary,
    int8,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class ConsumerGroupMetadataKey(Message, versions="0"):
    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0"):
    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions="0"):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: Buffer = binary()


class ClassicMemberMetadata(Struct):
    """Additional fields of a member that uses the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", tag=0
    )
    """Null is written explicitly."""


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0"):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)
    """Milliseconds since the epoch; 0 means that the next assignment need not wait."""


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0"):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0"):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", tag=0)
    """The epoch in which each partition was assigned (KIP-1251), one for each partition; null in
    records of older brokers."""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, versions="0"):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = array(string)
    version: int = int64()
    """Version of the metadata with these topics."""
    timestamp: int = int64()


ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

CONSUMER_GROUP_RECORDS: dict[int, tuple[type[Message], type[Message]]] = {
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
    value: Message | None
