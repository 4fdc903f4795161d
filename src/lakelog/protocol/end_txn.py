"""EndTxn (key 26): commit or abort a transaction."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.protocol.commit_sets import CommitSet, RefusedCommitSet, SinkState
from lakelog.wire.schema import Message, boolean, int16, int32, int64, string, struct


class EndTxnRequest(Message, versions="0-5", flexible="3+"):
    """Ends the ongoing transaction of a producer.

    Versions: 2 adds PRODUCER_FENCED, 3 is flexible, 4 adds TRANSACTION_ABORTABLE, 5 raises the
    epoch with every transaction (KIP-890).
    """

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()
    """Whether to commit; otherwise abort."""
    commit_set: CommitSet | None = struct(
        CommitSet, "3+", nullable="3+", tag=OWN_TAGS, default=None
    )
    """The transactional id is a sink, of which this batch ends."""
    removes_sink: bool = boolean("3+", tag=OWN_TAGS + 1)
    """Abort all children of the sink, and forget it; an administrator's request."""


class EndTxnResponse(Message, versions="0-5", flexible="3+"):
    """The result, and from version 5 on the producer id and epoch of the next transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
    sink: SinkState | None = struct(SinkState, "3+", nullable="3+", tag=OWN_TAGS, default=None)
    """The sink after the request."""
    refused: RefusedCommitSet | None = struct(
        RefusedCommitSet, "3+", nullable="3+", tag=OWN_TAGS + 1, default=None
    )


API = Api(26, EndTxnRequest, EndTxnResponse)
