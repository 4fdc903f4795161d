"""The coordinator's replies about sinks, and the messages that contain them."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import Sink, Transaction
from lakelog.protocol.commit_sets import RefusedCommitSet, SinkState
from lakelog.protocol.producers import InitProducerIdResponse
from lakelog.protocol.transactions import EndTxnResponse


class SinkReply(NamedTuple):
    """An error code, and without an error the identity of a sink or child."""

    code: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1
    sink: SinkState | None = None
    refused: RefusedCommitSet | None = None

    def initialised(self) -> InitProducerIdResponse:
        """Return the response to InitProducerId."""
        return InitProducerIdResponse(
            error_code=self.code,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sink=self.sink,
            refused=self.refused,
        )

    def ended(self) -> EndTxnResponse:
        """Return the response to EndTxn. A sink keeps its producer id and epoch."""
        return EndTxnResponse(
            error_code=self.code,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sink=self.sink,
            refused=self.refused,
        )


def sink_state(part: Sink) -> SinkState:
    """Return the control record as clients see it."""
    return SinkState(
        query_id=part.query_id,
        run_id=part.run_id,
        next_batch=part.next_batch,
        expires=part.expires,
        content=part.content,
    )


def sink_reply(current: Transaction) -> SinkReply:
    """Return the reply with the identity and the control record of a sink."""
    assert isinstance(current.part, Sink)
    identity = current.producer_id, current.producer_epoch
    return SinkReply(ErrorCode.NONE, *identity, sink_state(current.part))
