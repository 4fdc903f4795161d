"""The requests of brokers to the controller."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
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


class FailedReplica(Struct):
    """A replica of the broker whose log is damaged or has failed."""

    topic_id: bytes = uuid()
    partition_index: int = int32()
    leader_epoch: int = int32()
    """In which the broker found the failure; -1 at its start."""
    is_offline: bool = boolean("0+", tag=OWN_TAGS)
    """Whether the broker cannot even read the log."""


class BrokerHeartbeatRequest(Message, versions="0-2", flexible="0+"):
    """The state that a broker wants. Versions: 1 has offline folders, 2 cordoned ones."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    """The last entry of the metadata log that the broker has followed."""
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", tag=1, nullable="2+", default=None)
    is_read_only: bool = boolean("0+", tag=OWN_TAGS)
    """Whether the broker cannot write to its folder. Apache Kafka does not have this field."""
    failed_replicas: list[FailedReplica] = array(FailedReplica, "0+", tag=OWN_TAGS + 1)
    """Nor this one. Offline folders are about other controllers if there are any of these."""
    via_broker: int = int32("0+", tag=OWN_TAGS + 2, default=-1)
    """The broker that sends the request on to the controller; -1 for none."""
    want_lease: bool = boolean("0+", tag=OWN_TAGS + 3)
    """Whether the receiver, controller or not, is asked not to fence the broker for a while
    (`lakelog.server.coordinators.lease`). The request has no other effect then."""


class BrokerHeartbeatResponse(Message, versions="0-2", flexible="0+"):
    """The state that the controller has given the broker."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
    answered_by: int = int32("0+", tag=OWN_TAGS, default=-1)
    """The broker that has handled the request. Apache Kafka does not have this field."""
    is_lease_granted: bool = boolean("0+", tag=OWN_TAGS + 1)
    """The answer to `want_lease`; false from a broker that does not know the field."""


class BrokerState(Struct):
    """A member of the proposed ISR, and the epoch of its registration, -1 if it is unknown."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    """The proposed state of one partition, and the epochs of the state that it replaces."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()
    new_leader: int = int32(tag=OWN_TAGS, default=-1)
    """The preferred replica, if it has all records of the leader and takes over; -1 for none."""


class TopicData(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid("2+")
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(Message, versions="2-3", flexible="0+"):
    """Proposes ISRs. Versions: 3 has the epoch of each member's registration."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)
    via_broker: int = int32(tag=OWN_TAGS, default=-1)
    """The broker that sends the request on to the controller; -1 for none."""


class AlteredPartition(Struct):
    """The state of one partition after the request."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


class AlteredTopic(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid("2+")
    partitions: list[AlteredPartition] = array(AlteredPartition)


class AlterPartitionResponse(Message, versions="2-3", flexible="0+"):
    """The result for each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlteredTopic] = array(AlteredTopic)


class AllocateProducerIdsRequest(Message, versions="0", flexible="0+"):
    """Requests a block for one broker."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    via_broker: int = int32(tag=OWN_TAGS, default=-1)
    """The broker that sends the request on to the controller; -1 for none."""


class AllocateProducerIdsResponse(Message, versions="0", flexible="0+"):
    """A block that no broker had before."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()


APIS = (
    Api(56, AlterPartitionRequest, AlterPartitionResponse),
    Api(62, BrokerRegistrationRequest, BrokerRegistrationResponse),
    Api(63, BrokerHeartbeatRequest, BrokerHeartbeatResponse),
    Api(67, AllocateProducerIdsRequest, AllocateProducerIdsResponse),
)
