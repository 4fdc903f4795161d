"""BrokerRegistration (key 62): a starting broker joins the cluster (KIP-631)."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class Listener(Struct):
    """An address of the broker."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Struct):
    """The levels of a feature that the broker supports."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message, versions="0-4", flexible="0+"):
    """Registers one process of a broker.

    Versions: 2 has the folders, 3 the epoch before a clean stop (KIP-966), 4 features from 0 on.
    """

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)
    """The epoch of the former process if nothing that it wrote is lost, otherwise -1."""
    kept_topics_epoch: int = int64("3+", tag=OWN_TAGS, default=-1)
    """The epoch of the former process if nothing that it reported of `kept_topics` is lost.

    Apache Kafka has neither of these fields.
    """
    kept_topics: list[bytes] = array(uuid, "3+", tag=OWN_TAGS + 1)


class BrokerRegistrationResponse(Message, versions="0-4", flexible="0+"):
    """The epoch of the new registration."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)


API = Api(62, BrokerRegistrationRequest, BrokerRegistrationResponse)
