"""The supported APIs: keys, names and version ranges, with their message classes on demand.

Ranges are the stable ones of Apache Kafka 4.4. The module of an API is imported at the first use of
its request or response class, so that a broker starts without the modules that it does not need.
"""

from __future__ import annotations

from importlib import import_module

from lakelog.wire.schema import Message


class Api:
    """An API with its version range; `request` and `response` are its message classes.

    `max_version` is the newest stable version, and `flexible_from` the first flexible one. The
    server may advertise another range, as for Produce.
    """

    __slots__ = (
        "flexible_from",
        "key",
        "max_version",
        "min_version",
        "module",
        "name",
        "request",
        "response",
    )

    request: type[Message]
    response: type[Message]

    def __init__(
        self,
        key: int,
        name: str,
        module: str,
        *,
        min_version: int,
        max_version: int,
        flexible_from: int,
    ) -> None:
        self.key = key
        self.name = name
        self.module = module
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_from = flexible_from

    def __getattr__(self, attribute: str) -> type[Message]:
        """Import the message classes when one of them is first read."""
        if attribute not in ("request", "response"):
            raise AttributeError(attribute)
        module = import_module(f"lakelog.protocol.{self.module}")
        self.request = getattr(module, f"{self.name}Request")
        self.response = getattr(module, f"{self.name}Response")
        return self.request if attribute == "request" else self.response

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, {self.min_version}-{self.max_version})"


_NEVER_FLEXIBLE = 1 << 15

_TABLE = (
    # key, name, module, versions, first flexible version
    (0, "Produce", "produce", 3, 13, 9),
    (1, "Fetch", "fetch", 4, 18, 12),
    (2, "ListOffsets", "list_offsets", 1, 11, 6),
    (3, "Metadata", "metadata", 0, 13, 9),
    (8, "OffsetCommit", "offset_commit", 2, 10, 8),
    (9, "OffsetFetch", "offset_fetch", 1, 10, 6),
    (10, "FindCoordinator", "find_coordinator", 0, 6, 3),
    (11, "JoinGroup", "join_group", 0, 9, 6),
    (12, "Heartbeat", "heartbeat", 0, 4, 4),
    (13, "LeaveGroup", "leave_group", 0, 5, 4),
    (14, "SyncGroup", "sync_group", 0, 5, 4),
    (15, "DescribeGroups", "describe_groups", 0, 6, 5),
    (16, "ListGroups", "list_groups", 0, 5, 3),
    (18, "ApiVersions", "api_versions", 0, 5, 3),
    (19, "CreateTopics", "create_topics", 2, 7, 5),
    (20, "DeleteTopics", "delete_topics", 1, 6, 4),
    (21, "DeleteRecords", "delete_records", 0, 2, 2),
    (22, "InitProducerId", "init_producer_id", 0, 5, 2),
    (23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3),
    (25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3),
    (26, "EndTxn", "end_txn", 0, 5, 3),
    (27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1),
    (28, "TxnOffsetCommit", "txn_offset_commit", 0, 6, 3),
    (32, "DescribeConfigs", "describe_configs", 1, 4, 4),
    (33, "AlterConfigs", "alter_configs", 0, 2, 2),
    (35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 2),
    (37, "CreatePartitions", "create_partitions", 0, 3, 2),
    (42, "DeleteGroups", "delete_groups", 0, 3, 2),
    (43, "ElectLeaders", "elect_leaders", 0, 2, 2),
    (44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1),
    (45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0),
    (46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0),
    (47, "OffsetDelete", "offset_delete", 0, 0, _NEVER_FLEXIBLE),
    (60, "DescribeCluster", "describe_cluster", 0, 2, 0),
    (61, "DescribeProducers", "describe_producers", 0, 0, 0),
    (65, "DescribeTransactions", "describe_transactions", 0, 0, 0),
    (66, "ListTransactions", "list_transactions", 0, 2, 0),
    (68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0),
    (69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0),
    (74, "ListConfigResources", "list_config_resources", 0, 1, 0),
    (75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0),
)

APIS = {
    key: Api(key, name, module, min_version=lowest, max_version=highest, flexible_from=flexible)
    for key, name, module, lowest, highest, flexible in _TABLE
}
"""The supported APIs by key."""

_BY_NAME = {api.name: api for api in APIS.values()}


def api_for(request_class: type[Message]) -> Api:
    """Return the API of a request class. Raises `KeyError` for any other class."""
    return _BY_NAME[request_class.__name__.removesuffix("Request")]


def header_is_flexible(api_key: int, version: int) -> bool:
    """Return whether a request's header ends with tagged fields.

    This includes versions above `max_version`, so that newer clients get a response. Raises
    `KeyError` for an API that is not in `APIS`.
    """
    return version >= APIS[api_key].flexible_from
