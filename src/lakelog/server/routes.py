"""The table of APIs: which handler answers which, and which may use the receive buffer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lakelog.protocol.registry import APIS
from lakelog.server.broker import Broker
from lakelog.server.connections.repeat import Repeat
from lakelog.server.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    groups,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    reassignments,
    transactions,
    write_txn_markers,
)
from lakelog.server.repeats import fetch as fetch_repeat
from lakelog.server.repeats import produce as produce_repeat
from lakelog.server.requests.context import Context
from lakelog.server.requests.dispatch import Handler, Route

_HANDLERS: dict[str, Callable[[Broker, Context, Any], Any]] = {
    "Produce": produce.handle,
    "Fetch": fetch.handle,
    "ListOffsets": list_offsets.handle,
    "Metadata": metadata.handle,
    "OffsetCommit": groups.offset_commit,
    "OffsetFetch": groups.offset_fetch,
    "FindCoordinator": find_coordinator.handle,
    "JoinGroup": groups.join_group,
    "Heartbeat": groups.heartbeat,
    "LeaveGroup": groups.leave_group,
    "SyncGroup": groups.sync_group,
    "DescribeGroups": groups.describe_groups,
    "ListGroups": groups.list_groups,
    "ApiVersions": api_versions.handle,
    "CreateTopics": create_topics.handle,
    "DeleteTopics": delete_topics.handle,
    "DeleteRecords": delete_records.handle,
    "InitProducerId": init_producer_id.handle,
    "OffsetForLeaderEpoch": offset_for_leader_epoch.handle,
    "AddPartitionsToTxn": transactions.add_partitions,
    "AddOffsetsToTxn": transactions.add_offsets,
    "EndTxn": transactions.end,
    "TxnOffsetCommit": transactions.txn_offset_commit,
    "WriteTxnMarkers": write_txn_markers.handle,
    "DescribeConfigs": describe_configs.handle,
    "AlterConfigs": alter_configs.handle,
    "DescribeLogDirs": describe_log_dirs.handle,
    "CreatePartitions": create_partitions.handle,
    "DeleteGroups": groups.delete_groups,
    "IncrementalAlterConfigs": incremental_alter_configs.handle,
    "OffsetDelete": groups.offset_delete,
    "ElectLeaders": elect_leaders.handle,
    "AlterPartitionReassignments": reassignments.alter,
    "ListPartitionReassignments": reassignments.list_ongoing,
    "DescribeCluster": describe_cluster.handle,
    "ConsumerGroupHeartbeat": groups.consumer_group_heartbeat,
    "ConsumerGroupDescribe": groups.consumer_group_describe,
    "DescribeTransactions": transactions.describe,
    "ListTransactions": transactions.list_all,
    "DescribeProducers": describe_producers.handle,
    "ListConfigResources": list_config_resources.handle,
    "DescribeTopicPartitions": describe_topic_partitions.handle,
}
_IN_PLACE = frozenset({"Produce", "Fetch", "ListOffsets"})
_LEARNERS: dict[str, Callable[[Broker, Repeat | None, Context, Any], Repeat | None]] = {
    "Produce": produce_repeat.learn,
    "Fetch": fetch_repeat.learn,
}


def routes(broker: Broker) -> dict[int, Route]:
    """Every API of the registry, by its key."""
    table = {
        api.key: Route(
            api,
            partial(_HANDLERS[api.name], broker),
            in_place=api.name in _IN_PLACE,
            learn=partial(_LEARNERS[api.name], broker) if api.name in _LEARNERS else None,
            counts_errors=api.name in _LEARNERS,
        )
        for api in APIS.values()
    }
    assert len(table) == len(_HANDLERS)
    return table


def newer_api_versions(broker: Broker) -> Handler:
    """Answers an ApiVersions request of a version unknown here."""
    return partial(api_versions.handle_unsupported, broker)
