"""The requests that begin a connection: its versions and its authentication."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire import schema as wire


class ApiVersionsRequest(wire.Message, versions="0-5", flexible="3+"):
    """Requests the versions that the broker supports, and identifies the client.

    A broker that does not support the version responds in version 0 with UNSUPPORTED_VERSION and
    its ranges, so that the client can retry (KIP-511).

    Versions: 3 is flexible and names the client's software, 5 lets a client verify that it has
    reached the intended cluster and node (KIP-1242).
    """

    client_software_name: str = wire.string("3+")
    client_software_version: str = wire.string("3+")
    cluster_id: str | None = wire.string("5+", nullable="0+", default=None)
    """Null skips the check."""
    node_id: int = wire.int32("5+", default=-1)
    """-1 skips the check."""


class ApiVersion(wire.Struct):
    """An API and the inclusive range of its versions."""

    api_key: int = wire.int16()
    min_version: int = wire.int16()
    max_version: int = wire.int16()


class SupportedFeatureKey(wire.Struct):
    """A feature and the range of its levels that this broker supports."""

    name: str = wire.string()
    min_version: int = wire.int16()
    max_version: int = wire.int16()


class FinalizedFeatureKey(wire.Struct):
    """A feature and its level in the cluster."""

    name: str = wire.string()
    max_version_level: int = wire.int16()
    min_version_level: int = wire.int16()


class ApiVersionsResponse(wire.Message, versions="0-5", flexible="3+"):
    """The range of versions for each API.

    Its header is never flexible: the client reads it before it knows the broker's versions.

    Versions: 3 is flexible and adds features, 4 allows 0 as the minimum level of a feature.
    """

    error_code: int = wire.int16()
    api_keys: list[ApiVersion] = wire.array(ApiVersion)
    throttle_time_ms: int = wire.int32("1+")
    supported_features: list[SupportedFeatureKey] = wire.array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = wire.int64("3+", tag=1, default=-1)
    """The version of the set of features, which rises with each change; -1 when unknown."""
    finalized_features: list[FinalizedFeatureKey] = wire.array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = wire.boolean("3+", tag=3)


class SaslHandshakeRequest(wire.Message, versions="0-1"):
    """Names a mechanism.

    Versions: after 1 the tokens are in SaslAuthenticate requests (KIP-152), after 0 in none.
    """

    mechanism: str = wire.string()


class SaslHandshakeResponse(wire.Message, versions="0-1"):
    """The result, and the mechanisms that the broker has."""

    error_code: int = wire.int16()
    mechanisms: list[str] = wire.array(wire.string)


class SaslAuthenticateRequest(wire.Message, versions="0-2", flexible="2+"):
    """A token of the client. Versions: 1 has the session's lifetime, 2 is flexible."""

    auth_bytes: wire.Buffer = wire.binary()


class SaslAuthenticateResponse(wire.Message, versions="0-2", flexible="2+"):
    """A token of the broker, or the reason why the authentication failed."""

    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    auth_bytes: wire.Buffer = wire.binary()
    session_lifetime_ms: int = wire.int64("1+")
    """After which the client must authenticate again (KIP-368); 0 for no limit."""


APIS = (
    Api(17, SaslHandshakeRequest, SaslHandshakeResponse),
    Api(18, ApiVersionsRequest, ApiVersionsResponse),
    Api(36, SaslAuthenticateRequest, SaslAuthenticateResponse),
)
