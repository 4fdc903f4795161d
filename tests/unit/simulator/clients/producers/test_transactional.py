"""Verdicts of transactional producers, and the fates of their transactions."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from scripted_clients import Answer, ScriptedConnection, ScriptedWorld, produced, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate
from simulator.clients.producers.transaction_requests import TIMEOUT_MS
from simulator.clients.producers.transactional import TransactionalProducer, TransactionOver

PLACE = ("topic", 0)


def identity(epoch: int, producer_id: int = 7) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def producer(
    world: ScriptedWorld,
    *identities: Answer,
    produce: Answer = None,
    end: Answer = None,
    version: int = 2,
) -> tuple[TransactionalProducer, ScriptedConnection]:
    """Return a producer that has the first identity."""
    made = TransactionalProducer(world.context, "txn0", [PLACE], version)
    broker = world.answer(
        made,
        (FindCoordinatorRequest, FindCoordinatorResponse()),
        *((InitProducerIdRequest, each) for each in identities or (identity(0),)),
        (ProduceRequest, produce),
        (EndTxnRequest, end),
    )
    world.play(made._identify())
    return made, broker


@pytest.mark.parametrize(
    ("version", "epoch", "right"), [(0, 2, True), (0, 3, False), (2, 3, True), (2, 4, False)]
)
def test_an_epoch_rises_no_more_than_necessary(version: int, epoch: int, right: bool) -> None:
    with scripted_world() as world:
        made, _ = producer(world, identity(0), identity(epoch), version=version)
        world.play(made._identify())
        assert world.findings.broken == (set() if right else {Law.EPOCHS_SPARED})


def test_each_lost_request_may_raise_the_epoch() -> None:
    with scripted_world() as world:
        made, _ = producer(world, identity(0), None, None, identity(5))
        world.play(made._identify())
        assert not world.findings.violations


def test_an_identity_is_assigned_once() -> None:
    with scripted_world() as world:
        made, _ = producer(world, identity(0), identity(0))
        world.play(made._identify())
        assert world.findings.broken == {Law.NEW_IDENTITY}


@pytest.mark.parametrize(("code", "fenced"), [(0, False), (ErrorCode.INVALID_PRODUCER_EPOCH, True)])
def test_a_batch_of_an_older_epoch_is_rejected(code: int, fenced: bool) -> None:
    with scripted_world() as world:
        made, _ = producer(world, identity(1), produce=produced(code, offset=3))
        world.play(made._act_as_zombie((7, 0), made.now))
        assert world.findings.broken == (set() if fenced else {Law.FENCED})
        (zombie,) = world.records.transactions
        assert zombie.fate is Fate.ABORTED


@pytest.mark.parametrize(("waits_s", "right"), [(0.0, False), (TIMEOUT_MS / 1000, True)])
def test_a_transaction_is_open_until_its_timeout(waits_s: float, right: bool) -> None:
    with scripted_world() as world:
        made, _ = producer(world)
        made._began = 20.0 - waits_s  # `play` begins at 20 s, after the identity
        with pytest.raises(TransactionOver):
            world.play(made._is_done("Produce", ErrorCode.INVALID_TXN_STATE))
        assert world.findings.broken == (set() if right else {Law.IN_TIME})


@pytest.mark.parametrize(("code", "done"), [(0, True), (ErrorCode.CONCURRENT_TRANSACTIONS, False)])
def test_a_retriable_error_does_not_end_the_transaction(code: int, done: bool) -> None:
    with scripted_world() as world:
        made, _ = producer(world)
        assert world.play(made._is_done("Produce", code)) is done
        assert not world.findings.violations


@pytest.mark.parametrize(("commit", "fate"), [(True, Fate.COMMITTED), (False, Fate.ABORTED)])
def test_an_acknowledged_end_decides_and_brings_the_next_epoch(commit: bool, fate: Fate) -> None:
    with scripted_world() as world:
        busy = EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        made, broker = producer(world, end=EndTxnResponse(producer_id=7, producer_epoch=1))
        transaction = world.records.begin("t")
        made._began = made._filled_at = 20.0
        broker._answers[EndTxnRequest].insert(0, busy)
        world.play(made._end(transaction, commit=commit))
        assert transaction.fate is fate
        assert made._identity == (7, 1)
        assert [request.committed for request in broker.sent(EndTxnRequest)] == [commit] * 2
        assert not world.findings.violations


def test_a_transaction_that_timed_out_cannot_be_ended() -> None:
    with scripted_world() as world:
        made, _ = producer(world, end=EndTxnResponse())
        made._began = made._filled_at = 20.0 - TIMEOUT_MS / 1000 - 2
        world.play(made._end(world.records.begin("t"), commit=True))
        assert world.findings.broken == {Law.FENCED}


def test_a_crash_aborts_the_open_transaction_but_not_a_commit_under_way() -> None:
    for fate, left in ((Fate.OPEN, Fate.ABORTED), (Fate.COMMITTING, Fate.COMMITTING)):
        with scripted_world() as world:
            made, _ = producer(world)
            made._current = world.records.begin("t")
            made._current.fate = fate
            successor = made.replaced()
            assert made._current.fate is left
            assert (successor.name, successor._id) == ("txn0'1", "txn0")
