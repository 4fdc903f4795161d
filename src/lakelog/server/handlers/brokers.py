"""The requests of the cluster's brokers to each other and to the controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from lakelog.server.authentication import is_broker
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.wire.schema import Message

Q = TypeVar("Q", BrokerHeartbeatRequest, AlterPartitionRequest, AllocateProducerIdsRequest)
R = TypeVar("R", bound=Message)


async def broker_registration(
    broker: Broker, context: Context, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    """BrokerRegistration (62): registers a starting broker at the controller."""
    if not is_broker(context.principal, request.broker_id):
        return BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return await broker.controller.register(request)


async def broker_heartbeat(
    broker: Broker, context: Context, request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse:
    """BrokerHeartbeat (63): unfences a broker that has caught up, or lets it stop.

    Any broker, not only the controller, answers the request for a lease of coordinators.
    """
    if request.want_lease and broker.relays.may_send(context.principal, request):
        is_denied = broker.silence.deafness.is_denied(request.broker_id)
        granted = not is_denied and broker.controller.lease_grants.give(request.broker_id)
        return BrokerHeartbeatResponse(is_lease_granted=granted)
    return await _by_controller(
        broker, context, request, BrokerHeartbeatResponse, broker.controller.heartbeat
    )


async def alter_partition(
    broker: Broker, context: Context, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    """AlterPartition (56): changes the in-sync replicas of partitions for their leader."""
    return await _by_controller(
        broker, context, request, AlterPartitionResponse, broker.controller.alter_partition
    )


async def allocate_producer_ids(
    broker: Broker, context: Context, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """AllocateProducerIds (67): reserves a block of producer ids for a broker."""
    return await _by_controller(
        broker,
        context,
        request,
        AllocateProducerIdsResponse,
        broker.controller.allocate_producer_ids,
    )


async def _by_controller(
    broker: Broker,
    context: Context,
    request: Q,
    response: type[R],
    answer: Callable[[Q], Awaitable[R]],
) -> R:
    """Return the answer of this controller, or of the controller that this broker can reach."""
    if not broker.relays.may_send(context.principal, request):
        return response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if broker.relays.has_to_send_on(request):
        return await broker.relays.send_on(request, response)
    return await answer(request)


APIS = (
    ServedApi(
        BrokerRegistrationRequest,
        broker_registration,
        done="Between brokers.",
        missing="Several folders.",
        between_brokers=True,
    ),
    ServedApi(
        BrokerHeartbeatRequest,
        broker_heartbeat,
        done="Between brokers.",
        missing="Fencing on request; offline and cordoned folders.",
        between_brokers=True,
    ),
    ServedApi(
        AlterPartitionRequest,
        alter_partition,
        done="Between brokers: shrinks and expands the ISR.",
        missing="Leader recovery.",
        between_brokers=True,
    ),
    ServedApi(
        AllocateProducerIdsRequest,
        allocate_producer_ids,
        done="Between brokers.",
        between_brokers=True,
    ),
)
