"""ApiVersions (key 18): the first request of a connection."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, versions="0-5", flexible="3+"):
    """Requests the versions that the broker supports, and identifies the client.

    A broker that does not support the version responds in version 0 with UNSUPPORTED_VERSION and
    its ranges, so that the client can retry (KIP-511).

    Versions: 3 is flexible and names the client's software, 5 lets a client verify that it has
    reached the intended cluster and node (KIP-1242).
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
    """A feature and the range of its levels that this broker supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """A feature and its level in the cluster."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, versions="0-5", flexible="3+"):
    """The range of versions for each API.

    Its header is never flexible: the client reads it before it knows the broker's versions.

    Versions: 3 is flexible and adds features, 4 allows 0 as the minimum level of a feature.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)
    """The version of the set of features, which rises with each change; -1 when unknown."""
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


API = Api(18, ApiVersionsRequest, ApiVersionsResponse)
