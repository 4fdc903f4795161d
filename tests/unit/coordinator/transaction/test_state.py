"""States of transactions, and the epoch of a repeated request."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    EPOCH_MAX,
    NEXT_STATES,
    NO_EPOCH,
    Sink,
    SinkReply,
    Transaction,
    TransactionState,
    TransactionVersion,
    last_epoch_of,
    sink_reply,
)
from lakelog.protocol.commit_sets import Refusal, RefusedCommitSet, SinkState

S = TransactionState
BUMPING = TransactionVersion.BUMPING


@pytest.mark.parametrize(
    ("state", "label"),
    [
        (S.EMPTY, "Empty"),
        (S.ONGOING, "Ongoing"),
        (S.PREPARE_COMMIT, "PrepareCommit"),
        (S.COMPLETE_ABORT, "CompleteAbort"),
        (S.PREPARE_EPOCH_FENCE, "PrepareEpochFence"),
    ],
)
def test_labels_are_the_names_of_kafka(state: TransactionState, label: str) -> None:
    """Administrators filter ListTransactions by these names."""
    assert state.label == label


def test_a_decision_is_followed_only_by_its_own_completion() -> None:
    assert NEXT_STATES[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert S.COMPLETE_COMMIT not in NEXT_STATES[S.PREPARE_ABORT]


def test_an_id_with_an_open_or_ending_transaction_cannot_be_deleted() -> None:
    deletable = {state for state, following in NEXT_STATES.items() if None in following}
    assert deletable == {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}


def test_each_state_is_open_ending_or_ended() -> None:
    assert [state for state in S if state.is_ending] == [S.PREPARE_COMMIT, S.PREPARE_ABORT]
    assert [state for state in S if state.has_ended] == [S.COMPLETE_COMMIT, S.COMPLETE_ABORT]


@pytest.mark.parametrize(
    "state", [S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
)
def test_the_end_of_a_transaction_follows_the_epoch_before_it(state: TransactionState) -> None:
    """KIP-890: a client that missed the response to EndTxn repeats it with its old epoch."""
    assert last_epoch_of(5, state, BUMPING) == 4
    assert last_epoch_of(5, state, TransactionVersion.FLEXIBLE) == NO_EPOCH


def test_the_first_epoch_of_a_producer_id_follows_the_last_one_of_another() -> None:
    assert last_epoch_of(0, S.COMPLETE_COMMIT, BUMPING) == EPOCH_LAST


def test_no_request_is_repeated_before_the_end_or_at_the_highest_epoch() -> None:
    """A fenced producer holds the epoch before the highest one."""
    assert last_epoch_of(5, S.ONGOING, BUMPING) == NO_EPOCH
    assert last_epoch_of(5, S.EMPTY, BUMPING) == NO_EPOCH
    assert last_epoch_of(EPOCH_MAX, S.COMPLETE_ABORT, BUMPING) == NO_EPOCH


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
