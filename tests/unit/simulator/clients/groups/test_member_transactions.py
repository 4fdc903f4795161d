"""Fates of transactions in which a member commits offsets."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from scripted_clients import Answer, ScriptedConnection, ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate
from simulator.clients.groups.member import GroupClient
from simulator.clients.groups.member_transactions import MemberTransactions

PLACE = ("topic", 0)
IDENTITY = InitProducerIdResponse(producer_id=7, producer_epoch=2)
BUSY = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)


def accepted(code: int = 0) -> TxnOffsetCommitResponse:
    part = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
    return TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name="topic", partitions=[part])]
    )


def transactions(
    world: ScriptedWorld,
    *identities: Answer,
    commit: Answer = None,
    end: Answer = None,
) -> tuple[MemberTransactions, ScriptedConnection]:
    member = GroupClient(world.context, "member'3", "team", [PLACE])
    broker = world.answer(
        member,
        *((InitProducerIdRequest, identity) for identity in identities),
        (TxnOffsetCommitRequest, commit),
        (EndTxnRequest, end),
    )
    return MemberTransactions(member), broker


@pytest.mark.parametrize(
    ("keep", "commit", "end", "fate", "is_open"),
    [
        (True, accepted(), EndTxnResponse(), Fate.COMMITTED, False),
        (False, accepted(), EndTxnResponse(), Fate.ABORTED, False),
        (True, accepted(), None, Fate.COMMITTING, True),
        (True, accepted(ErrorCode.ILLEGAL_GENERATION), EndTxnResponse(), Fate.ABORTED, False),
        (True, None, EndTxnResponse(), Fate.ABORTED, False),
    ],
)
def test_fates(keep: bool, commit: Answer, end: Answer, fate: Fate, is_open: bool) -> None:
    with scripted_world() as world:
        ours, broker = transactions(world, IDENTITY, commit=commit, end=end)
        world.play(ours.commit(PLACE, 5, "id", keep=keep))
        (transaction,) = world.records.transactions
        assert transaction.fate is fate
        assert ours.is_open is is_open
        (request,) = broker.sent(TxnOffsetCommitRequest)
        assert (request.generation_id_or_member_epoch, request.member_id) == (5, "id")
        (ended,) = broker.sent(EndTxnRequest)
        assert ended.committed is (fate in (Fate.COMMITTED, Fate.COMMITTING))
        assert (ended.producer_id, ended.producer_epoch) == (7, 2)
        assert not world.findings.violations


def test_successors_keep_the_transactional_id() -> None:
    with scripted_world() as world:
        ours, broker = transactions(world, IDENTITY, commit=accepted(), end=EndTxnResponse())
        world.play(ours.commit(PLACE, 5, "id", keep=True))
        (request,) = broker.sent(InitProducerIdRequest)
        assert request.transactional_id == "relay-member"


@pytest.mark.parametrize("answer", [None, BUSY])
def test_without_an_identity_nothing_is_committed(answer: Answer) -> None:
    with scripted_world() as world:
        ours, broker = transactions(world, answer)
        assert not world.play(ours.commit(PLACE, 5, "id", keep=True))
        assert len(broker.requests) == 1
        assert not ours.is_open
        assert not world.records.transactions


def test_an_open_transaction_is_ended_by_the_next_identity() -> None:
    with scripted_world() as world:
        ours, broker = transactions(world, BUSY, None, IDENTITY)
        ours.is_open = True
        world.play(ours.close())
        assert not ours.is_open
        assert len(broker.requests) == 3
        world.play(ours.close())
        assert len(broker.requests) == 3


def test_an_unexpected_error_is_a_violation() -> None:
    with scripted_world() as world:
        commit = accepted(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        ours, _ = transactions(world, IDENTITY, commit=commit, end=EndTxnResponse())
        assert not world.play(ours.commit(PLACE, 5, "id", keep=True))
        assert world.findings.broken == {Law.ANSWERS}
