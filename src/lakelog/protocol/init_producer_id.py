"""InitProducerId (key 22): a producer id and epoch for an idempotent or transactional producer."""

from __future__ import annotations

from lakelog.protocol.api import OWN_TAGS, Api
from lakelog.protocol.commit_sets import RefusedCommitSet, SinkParent, SinkRun, SinkState
from lakelog.wire.schema import Message, boolean, int16, int32, int64, string, struct


class InitProducerIdRequest(Message, versions="0-6", flexible="2+"):
    """Requests a producer id and epoch.

    Versions: 2 is flexible, 3 lets a producer keep its id with the next epoch (KIP-360), 4 and 5
    change the errors that a client expects, 6 adds two-phase commit (KIP-939) and is not stable.
    """

    transactional_id: str | None = string(nullable="0+")
    """Null for a producer without transactions."""
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    """The current producer id, -1 for none."""
    producer_epoch: int = int16("3+", default=-1)
    """The current producer epoch, -1 for none."""
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")
    run: SinkRun | None = struct(SinkRun, "2+", nullable="2+", tag=OWN_TAGS, default=None)
    """The transactional id is a sink, and this run of its query begins or continues."""
    parent: SinkParent | None = struct(
        SinkParent, "2+", nullable="2+", tag=OWN_TAGS + 1, default=None
    )
    """The transactional id is a child of this sink."""


class InitProducerIdResponse(Message, versions="0-6", flexible="2+"):
    """The producer id and epoch for record batches."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
    sink: SinkState | None = struct(SinkState, "2+", nullable="2+", tag=OWN_TAGS, default=None)
    """The sink that the request named or whose child it named."""
    refused: RefusedCommitSet | None = struct(
        RefusedCommitSet, "2+", nullable="2+", tag=OWN_TAGS + 1, default=None
    )


API = Api(22, InitProducerIdRequest, InitProducerIdResponse, latest_is_unstable=True)
