"""The requests of members of groups, which the coordinator of the group answers.

Start here: these are the shortest handlers.
"""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol import group_members as messages
from lakelog.server.broker import Broker
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
)
