from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.sink.reply import SinkReply, sink_reply
from lakelog.coordinator.transaction.state import Sink, Transaction
from lakelog.protocol.commit_sets import Refusal, RefusedCommitSet, SinkState


def test_both_responses_have_identity_and_control_record_but_no_digests() -> None:
    part = Sink(query_id="q", run_id="r", next_batch=4, expires=True, last_set=b"12345678")
    sink = Transaction(producer_id=7, producer_epoch=3, timeout_ms=1, last_update_ms=0, part=part)
    reply = sink_reply(sink)
    state = SinkState(query_id="q", run_id="r", next_batch=4, expires=True)
    for response in (reply.initialised(), reply.ended()):
        assert (response.error_code, response.sink) == (0, state)
        assert (response.producer_id, response.producer_epoch) == (7, 3)


def test_a_refusal_has_its_reason_beside_the_code() -> None:
    refused = RefusedCommitSet(reason=Refusal.BATCH_AHEAD, message="text")
    reply = SinkReply(ErrorCode.INVALID_TXN_STATE, refused=refused)
    for response in (reply.initialised(), reply.ended()):
        assert (response.error_code, response.refused) == (48, refused)
        assert response.producer_id == -1
