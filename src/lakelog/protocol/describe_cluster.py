"""DescribeCluster (key 60): the cluster id and the brokers, without topics."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    int64,
    string,
)


class DescribeClusterRequest(Message, versions="0-2", flexible="0+"):
    """Requests the brokers.

    Versions: 1 can request the controllers instead, 2 can include fenced brokers.
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    """1: brokers, 2: controllers."""
    include_fenced_brokers: bool = boolean("2+")
    missed_brokers: list[int] | None = array(int32, "0+", tag=OWN_TAGS, nullable="0+", default=None)
    """Brokers that do not answer the sender, a broker. Apache Kafka does not have this field."""
    ended_lease: int = int64("0+", tag=OWN_TAGS + 1, default=-1)
    """The `denied_lease` of the last response, after the lease has ended. Nor this one."""
    missing: int = int32("0+", tag=OWN_TAGS + 2, default=-1)
    """A controller that does not answer the sender, a broker. Nor this one."""
    lease_percent: int = int8("0+", tag=OWN_TAGS + 3, default=90)
    """For how long the answer extends the lease of the sender, a broker, in percent of a session.
    Nor this one: 90 of a broker of an older version."""


class DescribeClusterBroker(Struct):
    """A broker and its address on this listener."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, versions="0-2", flexible="0+"):
    """The cluster, flexible from version 0 on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text(default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
    """One bit per operation; the minimum int32 when not requested."""
    denied_lease: int = int64("0+", tag=OWN_TAGS, default=-1)
    """A number if the coordinators of the broker that asks get no lease: no broker reaches it.
    Apache Kafka does not have this field."""
    is_missing: bool = boolean("0+", tag=OWN_TAGS + 1)
    """Whether that controller does not answer the asked broker, either. Nor this one."""


API = Api(60, DescribeClusterRequest, DescribeClusterResponse)
