"""ListConfigResources (74): returns configurable topics, brokers and groups (KIP-1142).

Version 0 asks for client metrics only, which lakelog does not have.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.metadata.records import ResourceType
from lakelog.protocol.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Return the names of configurable resources, of the requested types or of all.

    The response has UNSUPPORTED_VERSION if a type is unknown (KIP-1142).
    """
    if context.version == 0:
        return ListConfigResourcesResponse()
    types = set(request.resource_types) or set(ResourceType)
    if not types <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in sorted(types)
            for name in _names(broker, resource_type)
        ]
    )


API = ServedApi(
    ListConfigResourcesRequest,
    handle,
    done="Topics, brokers and groups.",
    missing="Client metrics.",
)


def _names(broker: Broker, resource_type: int) -> list[str]:
    image = broker.image
    if resource_type == ResourceType.TOPIC:
        return sorted(image.topic_ids)
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(number) for number in sorted(image.brokers)]
    return sorted(name for kind, name in image.config_map if kind == resource_type)
