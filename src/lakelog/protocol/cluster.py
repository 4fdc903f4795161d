"""The cluster: its brokers and its features."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire import schema as wire


class DescribeClusterRequest(wire.Message, versions="0-2", flexible="0+"):
    """Requests the brokers.

    Versions: 1 can request the controllers instead, 2 can include fenced brokers.
    """

    include_cluster_authorized_operations: bool = wire.boolean()
    endpoint_type: int = wire.int8("1+", default=1)
    """1: brokers, 2: controllers."""
    include_fenced_brokers: bool = wire.boolean("2+")
    missed_brokers: list[int] | None = wire.array(
        wire.int32, "0+", tag=OWN_TAGS, nullable="0+", default=None
    )
    """Brokers that do not answer the sender, a broker. Apache Kafka does not have this field."""
    ended_lease: int = wire.int64("0+", tag=OWN_TAGS + 1, default=-1)
    """The `denied_lease` of the last response, after the lease has ended. Nor this one."""
    missing: int = wire.int32("0+", tag=OWN_TAGS + 2, default=-1)
    """A controller that does not answer the sender, a broker. Nor this one."""
    lease_percent: int = wire.int8("0+", tag=OWN_TAGS + 3, default=90)
    """For how long the answer extends the lease of the sender, a broker, in percent of a session.
    Nor this one: 90 of a broker of an older version."""


class DescribeClusterBroker(wire.Struct):
    """A broker and its address on this listener."""

    broker_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.string(nullable="0+", default=None)
    is_fenced: bool = wire.boolean("2+")


class DescribeClusterResponse(wire.Message, versions="0-2", flexible="0+"):
    """The cluster, flexible from version 0 on."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text(default=None)
    endpoint_type: int = wire.int8("1+", default=1)
    cluster_id: str = wire.string()
    controller_id: int = wire.int32(default=-1)
    brokers: list[DescribeClusterBroker] = wire.array(DescribeClusterBroker)
    cluster_authorized_operations: int = wire.int32(default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""
    denied_lease: int = wire.int64("0+", tag=OWN_TAGS, default=-1)
    """A number if the coordinators of the broker that asks get no lease: no broker reaches it.
    Apache Kafka does not have this field."""
    is_missing: bool = wire.boolean("0+", tag=OWN_TAGS + 1)
    """Whether that controller does not answer the asked broker, either. Nor this one."""


class FeatureUpdateKey(wire.Struct):
    """A feature and its wanted level."""

    feature: str = wire.string()
    max_version_level: int = wire.int16()
    allow_downgrade: bool = wire.boolean("0")
    upgrade_type: int = wire.int8("1+", default=1)
    """1: upgrade, 2: safe downgrade, 3: unsafe downgrade."""


class UpdateFeaturesRequest(wire.Message, versions="0-2", flexible="0+"):
    """Names levels.

    Versions: 1 has kinds of downgrades and a request without effect, 2 has the result of the
    whole request alone (KIP-1022).
    """

    timeout_ms: int = wire.int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = wire.array(FeatureUpdateKey)
    validate_only: bool = wire.boolean("1+")


class UpdatableFeatureResult(wire.Struct):
    """The result for one feature."""

    feature: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()


class UpdateFeaturesResponse(wire.Message, versions="0-2", flexible="0+"):
    """The result, which is the same for all features."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    results: list[UpdatableFeatureResult] = wire.array(UpdatableFeatureResult, "0-1")


class UnregisterBrokerRequest(wire.Message, versions="0", flexible="0+"):
    """Names the broker."""

    broker_id: int = wire.int32()


class UnregisterBrokerResponse(wire.Message, versions="0", flexible="0+"):
    """The result."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()


APIS = (
    Api(57, UpdateFeaturesRequest, UpdateFeaturesResponse),
    Api(60, DescribeClusterRequest, DescribeClusterResponse),
    Api(64, UnregisterBrokerRequest, UnregisterBrokerResponse),
)
