"""AlterPartition (key 56): a leader asks for another ISR of its partitions (KIP-497, KIP-903)."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, int8, int16, int32, int64, uuid


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


API = Api(56, AlterPartitionRequest, AlterPartitionResponse)
