"""Verdicts of a query with a sink: batches whose outcome a new run has to learn."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.commit_sets import Refusal, RefusedCommitSet, SinkState
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from scripted_clients import Answer, ScriptedConnection, ScriptedWorld, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate
from simulator.clients.producers.sink import Checkpoint, SinkQuery

PLACE = ("topic", 0)


def begun(next_batch: int) -> InitProducerIdResponse:
    state = SinkState(query_id="query", run_id="run-1", next_batch=next_batch)
    return InitProducerIdResponse(producer_id=7, producer_epoch=1, sink=state)


def refused(reason: Refusal) -> EndTxnResponse:
    row = RefusedCommitSet(reason=reason, message="text")
    return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE, refused=row)


def query(
    world: ScriptedWorld, next_batch: int, fate: Fate | None = None, end: Answer = None
) -> tuple[SinkQuery, ScriptedConnection]:
    """Return a query whose batch 3 has this fate, and whose next run finds `next_batch`."""
    checkpoint = Checkpoint(batch=3)
    if fate is not None:
        checkpoint.transaction = world.records.begin("sink0/3")
        checkpoint.transaction.fate = fate
    made = SinkQuery(world.context, "sink0", [PLACE], checkpoint)
    broker = world.answer(made, (InitProducerIdRequest, begun(next_batch)), (EndTxnRequest, end))
    return made, broker


@pytest.mark.parametrize(("next_batch", "fate"), [(3, Fate.ABORTED), (4, Fate.COMMITTED)])
def test_a_new_run_learns_whether_the_last_commit_happened(next_batch: int, fate: Fate) -> None:
    with scripted_world() as world:
        made, _ = query(world, next_batch, Fate.COMMITTING)
        pending = made._checkpoint.transaction
        assert pending is not None
        world.play(made._begin_run())
        assert pending.fate is fate
        assert made._checkpoint.batch == next_batch
        assert not world.findings.violations


@pytest.mark.parametrize(
    ("next_batch", "fate", "right"),
    [
        (3, None, True),
        (4, None, False),
        (4, Fate.ABORTED, False),
        (2, Fate.COMMITTING, False),
        (5, Fate.COMMITTING, False),
        (-1, None, False),
    ],
)
def test_the_next_batch_moves_by_commits_only(
    next_batch: int, fate: Fate | None, *, right: bool
) -> None:
    with scripted_world() as world:
        made, _ = query(world, next_batch, fate)
        world.play(made._begin_run())
        assert world.findings.broken == (set() if right else {Law.BATCH_ONCE})


@pytest.mark.parametrize(("commit", "fate"), [(True, Fate.COMMITTED), (False, Fate.OPEN)])
def test_an_acknowledged_commit_advances_the_batch(commit: bool, fate: Fate) -> None:
    with scripted_world() as world:
        made, broker = query(world, 3, end=EndTxnResponse())
        transaction = world.records.begin("sink0/3")
        world.play(made._end_batch(transaction, [], commit=commit))
        assert transaction.fate is fate
        assert made._checkpoint.batch == 3 + commit
        (request,) = broker.sent(EndTxnRequest)
        assert request.commit_set is not None
        assert request.commit_set.batch == 3


@pytest.mark.parametrize(
    ("reason", "waited_s", "right"),
    [
        (Refusal.NOT_OPEN, 30.0, True),
        (Refusal.NOT_OPEN, 0.0, False),
        (Refusal.BATCH_COMMITTED, 30.0, False),
    ],
)
def test_a_commit_is_refused_only_after_a_timeout(
    reason: Refusal, waited_s: float, *, right: bool
) -> None:
    with scripted_world() as world:
        made, _ = query(world, 3, end=refused(reason))
        made._began = 20.0 - waited_s  # `play` begins at 20 s
        transaction = world.records.begin("sink0/3")
        transaction.fate = Fate.COMMITTING
        world.play(made._end_batch(transaction, [], commit=True))
        assert transaction.fate is Fate.ABORTED
        assert world.findings.broken == (set() if right else {Law.ANSWERS})


def test_a_successor_continues_from_the_checkpoint() -> None:
    with scripted_world() as world:
        made, _ = query(world, 3, Fate.OPEN)
        successor = made.replaced()
        assert successor._checkpoint is made._checkpoint
        assert made._checkpoint.transaction is not None
        assert made._checkpoint.transaction.fate is Fate.ABORTED
        assert successor._sink_id == "sink0"
