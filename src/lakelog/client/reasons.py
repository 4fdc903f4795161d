"""Descriptions of error codes, because many responses have a code without a text.

A message then reads "group 'billing': the group has members" instead of "group 'billing'".
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode

_E = ErrorCode

REASONS = {
    _E.TOPIC_ALREADY_EXISTS: "already exists",
    _E.UNKNOWN_TOPIC_OR_PARTITION: "the broker does not know this topic or partition",
    _E.UNKNOWN_TOPIC_ID: "the broker does not know this topic id",
    _E.INVALID_TOPIC_EXCEPTION: (
        "not a topic name (1 to 249 letters, digits, '.', '_' and '-'), or an internal topic"
    ),
    _E.INVALID_PARTITIONS: "invalid number of partitions",
    _E.INVALID_REPLICATION_FACTOR: "more replicas than brokers",
    _E.INVALID_REPLICA_ASSIGNMENT: "invalid assignment of replicas",
    _E.OFFSET_OUT_OF_RANGE: "the offset is not in the log",
    _E.OFFSET_NOT_AVAILABLE: "the leader does not know its high watermark yet",
    _E.POLICY_VIOLATION: "rejected by a policy of the topic or broker",
    _E.GROUP_ID_NOT_FOUND: "the group does not exist",
    _E.NON_EMPTY_GROUP: "the group has members",
    _E.UNKNOWN_MEMBER_ID: "the group does not know this member, or has other members",
    _E.ILLEGAL_GENERATION: "the group has rebalanced meanwhile",
    _E.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    _E.FENCED_INSTANCE_ID: "another member uses the same group.instance.id",
    _E.INCONSISTENT_GROUP_PROTOCOL: "the members share no assignor",
    _E.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group subscribe to the topic",
    _E.GROUP_MAX_SIZE_REACHED: "the group or the broker has reached its maximum size",
    _E.INVALID_GROUP_ID: "invalid group name; it must not be empty",
    _E.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    _E.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is loading",
    _E.NOT_COORDINATOR: "the broker is not its coordinator",
    _E.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    _E.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id, or has expired",
    _E.PRODUCER_FENCED: "a newer producer has taken over",
    _E.INVALID_PRODUCER_EPOCH: "a newer producer has taken over",
    _E.CONCURRENT_TRANSACTIONS: "the previous transaction is not complete yet",
    _E.INVALID_TXN_STATE: "the transaction is not in a state that allows it",
    _E.NETWORK_EXCEPTION: "the connection broke",
    _E.BROKER_NOT_AVAILABLE: "the broker is not available",
    _E.REQUEST_TIMED_OUT: "no answer in time",
    _E.LEADER_NOT_AVAILABLE: "no leader is available",
    _E.NOT_LEADER_OR_FOLLOWER: "the broker is not its leader",
    _E.REPLICA_NOT_AVAILABLE: "the broker has no replica of it",
    _E.KAFKA_STORAGE_ERROR: "the broker's disk failed or is full",
    _E.UNSUPPORTED_VERSION: "the broker does not support the request",
    _E.TOPIC_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.GROUP_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.CLUSTER_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.SASL_AUTHENTICATION_FAILED: "authentication failed",
    _E.INVALID_CONFIG: "invalid setting",
    _E.MESSAGE_TOO_LARGE: "larger than max.message.bytes of the topic",
    _E.RECORD_LIST_TOO_LARGE: "larger than a segment of the topic",
    _E.CORRUPT_MESSAGE: "wrong checksum",
    _E.INVALID_RECORD: "a record breaks a rule of the topic",
    _E.INVALID_TIMESTAMP: "a timestamp is too far from the present",
    _E.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not support the compression",
    _E.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas",
}


def with_reason(code: ErrorCode, where: str) -> str:
    """Return the message for an error at `where`. Rare codes appear by Kafka's name."""
    reason = REASONS.get(code, code.name)
    return f"{where}: {reason}" if where else reason
