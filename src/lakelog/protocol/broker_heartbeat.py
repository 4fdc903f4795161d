"""BrokerHeartbeat (key 63): a broker asks the controller to unfence or to release it (KIP-631)."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, Struct, array, boolean, int16, int32, int64, uuid


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
    (`lakelog.server.controller.lease_grants`). The request has no other effect then."""


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


API = Api(63, BrokerHeartbeatRequest, BrokerHeartbeatResponse)
