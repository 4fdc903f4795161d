"""AllocateProducerIds (key 67): a broker gets a block of producer ids (KIP-730)."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.wire.schema import Message, int16, int32, int64


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


API = Api(67, AllocateProducerIdsRequest, AllocateProducerIdsResponse)
