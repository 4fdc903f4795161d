"""ApiVersions (18): what this broker serves.

The answer's header is a version 0 at every version, and a request of a version unknown here gets a
version 0 body with UNSUPPORTED_VERSION, so that a newer client can try again lower (KIP-511).
Produce is advertised from version 0 although 0 to 2 are refused: librdkafka turns compression off
otherwise (KAFKA-18659).
"""

from __future__ import annotations

import re

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from lakelog.protocol.registry import APIS
from lakelog.server.broker import Broker
from lakelog.server.cluster.features import finalized_features, supported_features
from lakelog.server.requests.context import Context

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_CLUSTER_CHECK_SINCE = 5
_ADVERTISED_MIN = {0: 0}


def handle(broker: Broker, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    name, version = request.client_software_name, request.client_software_version
    if context.version >= _SOFTWARE_SINCE:
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software = f"{name} {version}"
    if context.version >= _CLUSTER_CHECK_SINCE and _is_elsewhere(broker, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        api_keys=_served(),
        supported_features=supported_features(context.version),
        finalized_features_epoch=0,
        finalized_features=finalized_features(),
    )


def handle_unsupported(broker: Broker, context: Context, request: None) -> ApiVersionsResponse:
    """Carries the true range of ApiVersions itself; a client would retry for ever without."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served())


def _is_elsewhere(broker: Broker, request: ApiVersionsRequest) -> bool:
    """Whether the client meant another cluster or node than the one at this address (KIP-1242)."""
    return (request.cluster_id is not None and request.cluster_id != broker.cluster_id) or (
        request.node_id not in (-1, broker.node_id)
    )


def _served() -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=api.key,
            min_version=_ADVERTISED_MIN.get(api.key, api.min_version),
            max_version=api.max_version,
        )
        for api in APIS.values()
    ]
