"""The cluster: its brokers, its features, and brokers that will not return."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import FeatureUpdate, UpgradeType
from lakelog.protocol import cluster as messages
from lakelog.server.authentication import BROKER
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.wire.schema import Message

_BROKERS = 1
_CONTROLLERS = 2
_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def describe_cluster(
    broker: Broker, context: Context, request: messages.DescribeClusterRequest
) -> messages.DescribeClusterResponse:
    """DescribeCluster (60): returns the cluster id, the controller and the brokers.

    The brokers have their addresses for the client's listener.

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
    response = messages.DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.metadata.controller_id,
        brokers=[
            messages.DescribeClusterBroker(
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


def _misses(broker: Broker, controller_id: int) -> bool:
    """Return whether a broker is the controller, and does not answer this one."""
    return controller_id == broker.metadata.controller_id and (
        controller_id in broker.silence.missed()
    )


def _note_call(broker: Broker, caller: int, request: messages.DescribeClusterRequest) -> int:
    """Note a call of another broker; return the number that denies it a lease."""
    silence, metadata = broker.silence, broker.metadata
    silence.note_request(caller)
    if request.missed_brokers is not None:
        silence.note_lease(caller, request.lease_percent)
        silence.deafness.note_report(caller, frozenset(request.missed_brokers), request.ended_lease)
    is_controller = metadata.controller_id == metadata.broker_id
    return silence.deafness.denial(caller, is_controller=is_controller)


def _refused(
    request: messages.DescribeClusterRequest, code: ErrorCode, message: str
) -> messages.DescribeClusterResponse:
    return messages.DescribeClusterResponse(
        endpoint_type=request.endpoint_type, error_code=code, error_message=message
    )


async def update_features(
    broker: Broker, context: Context, request: messages.UpdateFeaturesRequest
) -> messages.UpdateFeaturesResponse:
    """UpdateFeatures (57): finalizes levels of features, all of the request or none.

    Version 0 allows any downgrade or none; before version 2 each feature has a result.

    Errors: see `plan_update_features`.
    """
    updates = [_update(update, context.version) for update in request.feature_updates]
    try:
        await broker.controller.update_features(updates, validate_only=request.validate_only)
    except KafkaError as error:
        return messages.UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [
        messages.UpdatableFeatureResult(feature=update.name, error_message=None)
        for update in updates
    ]
    return messages.UpdateFeaturesResponse(error_message=None, results=results)


def _update(update: messages.FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = update.upgrade_type
    if version == 0 and update.allow_downgrade:
        kind = UpgradeType.SAFE_DOWNGRADE
    return FeatureUpdate(update.feature, update.max_version_level, kind)


async def unregister_broker(
    broker: Broker, context: Context, request: messages.UnregisterBrokerRequest
) -> messages.UnregisterBrokerResponse:
    """UnregisterBroker (64): removes the registration of a broker that will not return.

    The response has BROKER_ID_NOT_REGISTERED for an unknown one and INVALID_REQUEST for a running
    one.
    """
    try:
        await broker.controller.unregister(request.broker_id)
    except KafkaError as error:
        return messages.UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return messages.UnregisterBrokerResponse(error_message=None)


def _failed(
    context: Context,
    request: messages.UpdateFeaturesRequest | messages.UnregisterBrokerRequest,
    error: KafkaError,
) -> Message:
    return context.api.response(error_code=error.code, error_message=error.message)


APIS = (
    ServedApi(
        messages.DescribeClusterRequest,
        describe_cluster,
        done="Brokers, fenced ones on request (KIP-1073).",
        missing="Controllers: one of the brokers is the controller.",
    ),
    ServedApi(
        messages.UpdateFeaturesRequest,
        update_features,
        done="transaction.version, lakelog.metadata.version.",
        missing="metadata.version and other levels of Apache Kafka.",
        by_controller=_failed,
    ),
    ServedApi(
        messages.UnregisterBrokerRequest,
        unregister_broker,
        done="Stopped brokers; their replicas stay offline.",
        missing="Running brokers, which Kafka unregisters too.",
        by_controller=_failed,
    ),
)
