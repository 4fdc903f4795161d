"""DescribeCluster (60): returns the cluster id and the brokers."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from lakelog.server.auth.principal import BROKER
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_BROKERS = 1
_CONTROLLERS = 2
_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def handle(
    broker: Broker, context: Context, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Return the cluster id, the controller and the brokers at addresses of the client's listener.

    The response has MISMATCHED_ENDPOINT_TYPE for controllers (KIP-919), which this address does not
    serve, and UNSUPPORTED_ENDPOINT_TYPE for unknown types.
    """
    if request.endpoint_type == _CONTROLLERS:
        return _refused(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's listener")
    if request.endpoint_type != _BROKERS:
        return _refused(request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "unknown endpoint type")
    nodes = broker.nodes_for(context.connection)
    if request.include_fenced_brokers:
        nodes += broker.fenced_nodes_for(context.connection)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=node.is_fenced,
            )
            for node in nodes
        ],
    )
    if context.principal.kind == BROKER:
        response.is_missing = _misses(broker, request.missing)
        response.denied_lease = _note_call(broker, int(context.principal.name), request)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _OPERATIONS
    return response


API = ServedApi(
    DescribeClusterRequest,
    handle,
    done="Brokers, fenced ones on request (KIP-1073).",
    missing="Controllers: one of the brokers is the controller.",
)


def _misses(broker: Broker, controller_id: int) -> bool:
    """Return whether a broker is the controller, and does not answer this one."""
    return controller_id == broker.metadata.controller_id and (
        controller_id in broker.silence.missed()
    )


def _note_call(broker: Broker, caller: int, request: DescribeClusterRequest) -> int:
    """Note a call of another broker; return the number that denies it a lease."""
    silence, metadata = broker.silence, broker.metadata
    silence.note_request(caller)
    if request.missed_brokers is not None:
        silence.note_lease(caller, request.lease_percent)
        silence.deafness.note_report(caller, frozenset(request.missed_brokers), request.ended_lease)
    is_controller = metadata.controller_id == metadata.broker_id
    return silence.deafness.denial(caller, is_controller=is_controller)


def _refused(
    request: DescribeClusterRequest, code: ErrorCode, message: str
) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type, error_code=code, error_message=message
    )
