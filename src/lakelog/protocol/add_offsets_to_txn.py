"""AddOffsetsToTxn (key 25): add the offsets of a group to a transaction."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, versions="0-4", flexible="3+"):
    """Adds the partition of `__consumer_offsets` that belongs to a group.

    Versions: 2 adds PRODUCER_FENCED, 3 is flexible, 4 adds TRANSACTION_ABORTABLE. A producer with
    transaction version 2 does not send this request (KIP-890).
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, versions="0-4", flexible="3+"):
    """The result."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


API = Api(25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
