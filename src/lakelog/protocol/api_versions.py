"""ApiVersions (key 18): what a connection begins with."""

from __future__ import annotations

from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, versions="0-5", flexible="3+"):
    """Asks what the broker can do, and says which client asks.

    A broker that does not know the version answers in version 0 with UNSUPPORTED_VERSION and its
    ranges, so that the client can ask again (KIP-511).

    Versions: 3 is flexible and names the client's software, 5 lets a client make sure that it has
    reached the cluster and the node it meant (KIP-1242).
    """

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")
    cluster_id: str | None = string("5+", nullable="0+", default=None)
    """Null skips the check."""
    node_id: int = int32("5+", default=-1)
    """-1 skips the check."""


class ApiVersion(Struct):
    """An API and the inclusive range of its versions."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """A feature and the levels this broker could run at."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """A feature and the levels the cluster has agreed on."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, versions="0-5", flexible="3+"):
    """The range of versions for each API.

    Its header is never flexible: the client reads it before it knows what the broker understands.

    Versions: 3 is flexible and adds features, 4 may say a feature's lowest level is 0.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)
    """Rises with every change of the features; -1 when unknown."""
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
