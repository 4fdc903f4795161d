"""ApiVersions (18): returns the APIs and versions that this broker serves.

The response header is a version 0 at every version. A request of an unknown version gets a version
0 body with UNSUPPORTED_VERSION, so that a newer client can retry with a lower one (KIP-511).
Produce is advertised from version 0 although 0 to 2 are rejected: librdkafka turns compression off
otherwise (KAFKA-18659); its handler declares that.
"""

from __future__ import annotations

import re

from lakelog.base.errors import ErrorCode
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.server.topics.responses import finalized_features, supported_features

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_CLUSTER_CHECK_SINCE = 5


def handle(broker: Broker, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the served APIs, and note the client's software.

    The response has INVALID_REQUEST for a malformed name or version of the software (KIP-511), and
    REBOOTSTRAP_REQUIRED for a client that expects another cluster or node (KIP-1242).
    """
    name, version = request.client_software_name, request.client_software_version
    if context.version >= _SOFTWARE_SINCE:
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.session.client_software = f"{name} {version}"
    if context.version >= _CLUSTER_CHECK_SINCE and _is_elsewhere(broker, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        api_keys=broker.advertised_apis,
        supported_features=supported_features(context.version),
        # Clients keep the levels with the highest epoch that they have seen.
        finalized_features_epoch=broker.image.end,
        finalized_features=finalized_features(broker.image),
    )


API = ServedApi(ApiVersionsRequest, handle, done="Features; version 5 checks cluster and node.")


def handle_unsupported(
    broker: Broker, context: Context, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Return the true range of ApiVersions; without it a client would retry forever."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=broker.advertised_apis
    )


def _is_elsewhere(broker: Broker, request: ApiVersionsRequest) -> bool:
    """Return whether the client expects another cluster or node at this address (KIP-1242)."""
    return (request.cluster_id is not None and request.cluster_id != broker.cluster_id) or (
        request.node_id not in (-1, broker.node_id)
    )
