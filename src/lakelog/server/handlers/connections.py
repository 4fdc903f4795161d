"""The requests that begin a connection: the versions of APIs, and authentication."""

from __future__ import annotations

import re

from lakelog.base.errors import ErrorCode
from lakelog.metadata.features import SUPPORTED
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    SupportedFeatureKey,
)
from lakelog.server.authentication import (
    MECHANISM,
    NONCE_BYTES,
    AuthenticationState,
    Process,
    ProofCheck,
    broker_principal,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_CLUSTER_CHECK_SINCE = 5
_MIN_OF_0_SINCE = 4
"""Older clients fail on a feature whose lowest level is 0 (KAFKA-17011)."""
_TOKENS_IN_REQUESTS_SINCE = 1


def api_versions(
    broker: Broker, context: Context, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """ApiVersions (18): returns the APIs and versions that this broker serves.

    The response header is a version 0 at every version. A request of an unknown version gets a
    version 0 body with UNSUPPORTED_VERSION, so that a newer client can retry with a lower one
    (KIP-511). Produce is advertised from version 0 although 0 to 2 are rejected: librdkafka turns
    compression off otherwise (KAFKA-18659); its handler declares that.

    The connection notes the client's software. The response has INVALID_REQUEST for a malformed
    name or version of the software (KIP-511), and REBOOTSTRAP_REQUIRED for a client that expects
    another cluster or node (KIP-1242).
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


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """Return the supported levels for a request to ApiVersions of `version`."""
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, lowest, highest in SUPPORTED
        if lowest > 0 or version >= _MIN_OF_0_SINCE
    ]


def finalized_features(image: MetadataImage) -> list[FinalizedFeatureKey]:
    """Return every feature above level 0, which stands for its absence."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(image.feature_levels.items())
        if level > 0
    ]


def unsupported_api_versions(
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


def sasl_handshake(
    broker: Broker, context: Context, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """SaslHandshake (17): begins the proof that the caller is a broker of this cluster.

    Clients are not authenticated yet: with any other mechanism they get ILLEGAL_SASL_STATE, as from
    Apache Kafka on a listener without SASL.
    """
    authentication = context.connection.session.authentication
    is_for_brokers = (
        request.mechanism == MECHANISM
        and context.version >= _TOKENS_IN_REQUESTS_SINCE
        and authentication.state is AuthenticationState.NOT_REQUIRED
    )
    if not is_for_brokers:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    own = Process(broker.node_id, broker.metadata.incarnation_id)
    nonce = broker.random.bytes(NONCE_BYTES)
    authentication.broker_check = ProofCheck(broker.image.cluster_id or "", own, nonce)
    authentication.begin()
    return SaslHandshakeResponse(mechanisms=[MECHANISM])


async def sasl_authenticate(
    broker: Broker, context: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """SaslAuthenticate (36): the tokens with which a broker proves that it is one.

    A connection with a failed proof is of no more use: every further request closes it or fails.

    A wrong token has SASL_AUTHENTICATION_FAILED.
    """
    authentication = context.connection.session.authentication
    check = authentication.broker_check
    if authentication.state is not AuthenticationState.AUTHENTICATING:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate must follow a successful SaslHandshake",
        )
    if check is None:
        return _wrong_token("an earlier token of this connection was wrong")
    is_first = check.node_id < 0
    authentication.broker_check = None  # a failure is final
    token = bytes(request.auth_bytes)
    answer = check.begin(token) if is_first else await broker.registered.answer(check, token)
    if answer is None:
        return _wrong_token(f"the caller is not a registered process of broker {check.node_id}")
    if is_first:
        authentication.broker_check = check
    else:
        authentication.succeed(broker_principal(check.node_id))
    return SaslAuthenticateResponse(auth_bytes=answer)


def _wrong_token(reason: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=reason
    )


APIS = (
    ServedApi(
        ApiVersionsRequest, api_versions, done="Features; version 5 checks cluster and node."
    ),
    ServedApi(SaslHandshakeRequest, sasl_handshake, done="Between brokers.", missing="Clients."),
    ServedApi(
        SaslAuthenticateRequest, sasl_authenticate, done="Between brokers.", missing="Clients."
    ),
)
