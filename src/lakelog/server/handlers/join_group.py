"""JoinGroup (11): makes a client a member of a classic group.

A new member first gets a member id (version 4 and later) and sends the request again with it. The
response then waits until all members have joined, the rebalance times out, or, in an empty group,
`group.initial.rebalance.delay.ms` has passed.
"""

from __future__ import annotations

from lakelog.coordinator.shard import Reply
from lakelog.protocol.group_members import JoinGroupRequest, JoinGroupResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(broker: Broker, context: Context, request: JoinGroupRequest) -> Reply[JoinGroupResponse]:
    """Pass the request to the group's coordinator; the address has Kafka's form, `/1.2.3.4`."""
    return broker.groups.join_group(
        request, context.version, context.client_id, f"/{context.connection.session.peer[0]}"
    )


API = ServedApi(JoinGroupRequest, handle, done="Dynamic and static members.")
