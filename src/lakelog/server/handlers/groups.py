"""Groups: the requests of members, and the coordinators, state and deletion of groups.

The requests of members are the shortest handlers.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.shard import Reply
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.protocol import groups as messages
from lakelog.server.broker import Broker, Node
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def join_group(
    broker: Broker, context: Context, request: messages.JoinGroupRequest
) -> Reply[messages.JoinGroupResponse]:
    """JoinGroup (11): makes a client a member of a classic group.

    A new member first gets a member id (version 4 and later) and sends the request again with it.
    The response then waits until all members have joined, the rebalance times out, or, in an empty
    group, `group.initial.rebalance.delay.ms` has passed.

    The address of the client has Kafka's form, `/1.2.3.4`.
    """
    return broker.groups.join_group(
        request, context.version, context.client_id, f"/{context.connection.session.peer[0]}"
    )


def sync_group(
    broker: Broker, context: Context, request: messages.SyncGroupRequest
) -> Reply[messages.SyncGroupResponse]:
    """SyncGroup (14): returns to each member of a classic group the assignment by its leader.

    The response of a member waits for the leader's request.
    """
    return broker.groups.sync_group(request, context.version)


def heartbeat(
    broker: Broker, context: Context, request: messages.HeartbeatRequest
) -> Reply[messages.HeartbeatResponse]:
    """Heartbeat (12): keeps a member of a classic group alive, and notifies it of a rebalance."""
    return broker.groups.heartbeat(request, context.version)


def leave_group(
    broker: Broker, context: Context, request: messages.LeaveGroupRequest
) -> Reply[messages.LeaveGroupResponse]:
    """LeaveGroup (13): removes a member from its group, from version 3 on several (KIP-345)."""
    return broker.groups.leave_group(request, context.version)


def consumer_group_heartbeat(
    broker: Broker, context: Context, request: messages.ConsumerGroupHeartbeatRequest
) -> Reply[messages.ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat (68): is the only request of a member of a consumer group (KIP-848).

    The address of the client has Kafka's form, `/1.2.3.4`.
    """
    return broker.groups.consumer_group_heartbeat(
        request, context.version, context.client_id, f"/{context.connection.session.peer[0]}"
    )


_GROUP = 0
_TRANSACTION = 1
_BATCHED_SINCE = 4


async def find_coordinator(
    broker: Broker, context: Context, request: messages.FindCoordinatorRequest
) -> messages.FindCoordinatorResponse:
    """FindCoordinator (10): returns the broker that coordinates a group or a transactional id.

    The leader of a partition of the coordinator's topic coordinates the keys of that partition. The
    topic is created on first use.
    """
    if context.version >= _BATCHED_SINCE:
        coordinators = [
            await _find(broker, context, request.key_type, key) for key in request.coordinator_keys
        ]
        return messages.FindCoordinatorResponse(coordinators=coordinators)
    one = await _find(broker, context, request.key_type, request.key)
    return messages.FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: Broker, context: Context, key_type: int, key: str) -> messages.Coordinator:
    try:
        topic, index = await _partition(broker, key_type, key)
        node = _leader(broker, context, topic, index)
    except KafkaError as error:
        return messages.Coordinator(
            key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
        )
    return messages.Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)


async def _partition(broker: Broker, key_type: int, key: str) -> tuple[str, int]:
    """Return the partition that stores the key, once its topic exists. Raises `KafkaError`."""
    if key_type == _GROUP:
        await broker.topics.ensure_group_topic()
        return GROUP_TOPIC, broker.groups.partition_for(key)
    if key_type == _TRANSACTION:
        await broker.topics.ensure_transaction_topic()
        return TRANSACTION_TOPIC, broker.transactions.partition_for(key)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is unknown")


def _leader(broker: Broker, context: Context, topic: str, index: int) -> Node:
    """Return the leader in the metadata image, with an address that the client can reach.

    Raises `KafkaError` (COORDINATOR_NOT_AVAILABLE) without such a leader. Clients retry this code.
    """
    partition = broker.image.partition(topic, index)
    leader = partition.leader if partition is not None else -1
    node = broker.node_for(context.connection, leader) if leader >= 0 else None
    if node is None:
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no available leader"
        )
    return node


def list_groups(
    broker: Broker, context: Context, request: messages.ListGroupsRequest
) -> Reply[messages.ListGroupsResponse]:
    """ListGroups (16): lists the groups of this broker, filtered by state and type."""
    return broker.groups.admin.list_groups(request)


def describe_groups(
    broker: Broker, context: Context, request: messages.DescribeGroupsRequest
) -> messages.DescribeGroupsResponse:
    """DescribeGroups (15): returns the state and the members of classic groups."""
    return broker.groups.admin.describe_groups(request, context.version).result()


def consumer_group_describe(
    broker: Broker, context: Context, request: messages.ConsumerGroupDescribeRequest
) -> messages.ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe (69): returns the state and members of consumer groups (KIP-848)."""
    return broker.groups.admin.consumer_group_describe(request).result()


def delete_groups(
    broker: Broker, context: Context, request: messages.DeleteGroupsRequest
) -> Reply[messages.DeleteGroupsResponse]:
    """DeleteGroups (42): deletes groups that have no members."""
    return broker.groups.admin.delete_groups(request)


APIS = (
    ServedApi(messages.JoinGroupRequest, join_group, done="Dynamic and static members."),
    ServedApi(messages.SyncGroupRequest, sync_group, done="All."),
    ServedApi(messages.HeartbeatRequest, heartbeat, done="All."),
    ServedApi(
        messages.LeaveGroupRequest,
        leave_group,
        done="One member or many, static members by instance id.",
    ),
    ServedApi(
        messages.ConsumerGroupHeartbeatRequest,
        consumer_group_heartbeat,
        done="Uniform and range assignors, regular expressions.",
    ),
    ServedApi(
        messages.FindCoordinatorRequest,
        find_coordinator,
        done="Groups and transactional ids.",
        missing="Share groups.",
    ),
    ServedApi(messages.ListGroupsRequest, list_groups, done="Filters of states and types."),
    ServedApi(
        messages.DescribeGroupsRequest, describe_groups, done="Groups of the classic protocol."
    ),
    ServedApi(messages.ConsumerGroupDescribeRequest, consumer_group_describe, done="All."),
    ServedApi(messages.DeleteGroupsRequest, delete_groups, done="All."),
)
