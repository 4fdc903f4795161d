"""The requests of brokers to the controller."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire import schema as wire


class Listener(wire.Struct):
    """An address of the broker."""

    name: str = wire.string()
    host: str = wire.string()
    port: int = wire.uint16()
    security_protocol: int = wire.int16()


class Feature(wire.Struct):
    """The levels of a feature that the broker supports."""

    name: str = wire.string()
    min_supported_version: int = wire.int16()
    max_supported_version: int = wire.int16()


class BrokerRegistrationRequest(wire.Message, versions="0-4", flexible="0+"):
    """Registers one process of a broker.

    Versions: 2 has the folders, 3 the epoch before a clean stop (KIP-966), 4 features from 0 on.
    """

    broker_id: int = wire.int32()
    cluster_id: str = wire.string()
    incarnation_id: bytes = wire.uuid()
    listeners: list[Listener] = wire.array(Listener)
    features: list[Feature] = wire.array(Feature)
    rack: str | None = wire.string(nullable="0+")
    is_migrating_zk_broker: bool = wire.boolean("1+")
    log_dirs: list[bytes] = wire.array(wire.uuid, "2+")
    previous_broker_epoch: int = wire.int64("3+", default=-1)
    """The epoch of the former process if nothing that it wrote is lost, otherwise -1."""
    kept_topics_epoch: int = wire.int64("3+", tag=OWN_TAGS, default=-1)
    """The epoch of the former process if nothing that it reported of `kept_topics` is lost.

    Apache Kafka has neither of these fields.
    """
    kept_topics: list[bytes] = wire.array(wire.uuid, "3+", tag=OWN_TAGS + 1)


class BrokerRegistrationResponse(wire.Message, versions="0-4", flexible="0+"):
    """The epoch of the new registration."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    broker_epoch: int = wire.int64(default=-1)


class FailedReplica(wire.Struct):
    """A replica of the broker whose log is damaged or has failed."""

    topic_id: bytes = wire.uuid()
    partition_index: int = wire.int32()
    leader_epoch: int = wire.int32()
    """In which the broker found the failure; -1 at its start."""
    is_offline: bool = wire.boolean("0+", tag=OWN_TAGS)
    """Whether the broker cannot even read the log."""


class BrokerHeartbeatRequest(wire.Message, versions="0-2", flexible="0+"):
    """The state that a broker wants. Versions: 1 has offline folders, 2 cordoned ones."""

    broker_id: int = wire.int32()
    broker_epoch: int = wire.int64(default=-1)
    current_metadata_offset: int = wire.int64()
    """The last entry of the metadata log that the broker has followed."""
    want_fence: bool = wire.boolean()
    want_shut_down: bool = wire.boolean()
    offline_log_dirs: list[bytes] = wire.array(wire.uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = wire.array(
        wire.uuid, "2+", tag=1, nullable="2+", default=None
    )
    is_read_only: bool = wire.boolean("0+", tag=OWN_TAGS)
    """Whether the broker cannot write to its folder. Apache Kafka does not have this field."""
    failed_replicas: list[FailedReplica] = wire.array(FailedReplica, "0+", tag=OWN_TAGS + 1)
    """Nor this one. Offline folders are about other controllers if there are any of these."""
    via_broker: int = wire.int32("0+", tag=OWN_TAGS + 2, default=-1)
    """The broker that sends the request on to the controller; -1 for none."""
    want_lease: bool = wire.boolean("0+", tag=OWN_TAGS + 3)
    """Whether the receiver, controller or not, is asked not to fence the broker for a while
    (`lakelog.server.coordinators.lease`). The request has no other effect then."""


class BrokerHeartbeatResponse(wire.Message, versions="0-2", flexible="0+"):
    """The state that the controller has given the broker."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    is_caught_up: bool = wire.boolean()
    is_fenced: bool = wire.boolean(default=True)
    should_shut_down: bool = wire.boolean()
    answered_by: int = wire.int32("0+", tag=OWN_TAGS, default=-1)
    """The broker that has handled the request. Apache Kafka does not have this field."""
    is_lease_granted: bool = wire.boolean("0+", tag=OWN_TAGS + 1)
    """The answer to `want_lease`; false from a broker that does not know the field."""


class BrokerState(wire.Struct):
    """A member of the proposed ISR, and the epoch of its registration, -1 if it is unknown."""

    broker_id: int = wire.int32("3+")
    broker_epoch: int = wire.int64("3+", default=-1)


class PartitionData(wire.Struct):
    """The proposed state of one partition, and the epochs of the state that it replaces."""

    partition_index: int = wire.int32()
    leader_epoch: int = wire.int32()
    new_isr: list[int] = wire.array(wire.int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = wire.array(BrokerState, "3+")
    leader_recovery_state: int = wire.int8("1+")
    partition_epoch: int = wire.int32()
    new_leader: int = wire.int32(tag=OWN_TAGS, default=-1)
    """The preferred replica, if it has all records of the leader and takes over; -1 for none."""


class TopicData(wire.Struct):
    """Partitions of one topic."""

    topic_id: bytes = wire.uuid("2+")
    partitions: list[PartitionData] = wire.array(PartitionData)


class AlterPartitionRequest(wire.Message, versions="2-3", flexible="0+"):
    """Proposes ISRs. Versions: 3 has the epoch of each member's registration."""

    broker_id: int = wire.int32()
    broker_epoch: int = wire.int64(default=-1)
    topics: list[TopicData] = wire.array(TopicData)
    via_broker: int = wire.int32(tag=OWN_TAGS, default=-1)
    """The broker that sends the request on to the controller; -1 for none."""


class AlteredPartition(wire.Struct):
    """The state of one partition after the request."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32()
    isr: list[int] = wire.array(wire.int32)
    leader_recovery_state: int = wire.int8("1+")
    partition_epoch: int = wire.int32()


class AlteredTopic(wire.Struct):
    """Partitions of one topic."""

    topic_id: bytes = wire.uuid("2+")
    partitions: list[AlteredPartition] = wire.array(AlteredPartition)


class AlterPartitionResponse(wire.Message, versions="2-3", flexible="0+"):
    """The result for each partition."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    topics: list[AlteredTopic] = wire.array(AlteredTopic)


class AllocateProducerIdsRequest(wire.Message, versions="0", flexible="0+"):
    """Requests a block for one broker."""

    broker_id: int = wire.int32()
    broker_epoch: int = wire.int64(default=-1)
    via_broker: int = wire.int32(tag=OWN_TAGS, default=-1)
    """The broker that sends the request on to the controller; -1 for none."""


class AllocateProducerIdsResponse(wire.Message, versions="0", flexible="0+"):
    """A block that no broker had before."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id_start: int = wire.int64()
    producer_id_len: int = wire.int32()


APIS = (
    Api(56, AlterPartitionRequest, AlterPartitionResponse),
    Api(62, BrokerRegistrationRequest, BrokerRegistrationResponse),
    Api(63, BrokerHeartbeatRequest, BrokerHeartbeatResponse),
    Api(67, AllocateProducerIdsRequest, AllocateProducerIdsResponse),
)
