"""Verdicts of producers without transactions about acknowledgements and errors."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from scripted_clients import Answer, ScriptedConnection, ScriptedWorld, produced, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.producers.idempotent import IdempotentProducer, PlainProducer

PLACE = ("topic", 0)
IDENTIFIED = (InitProducerIdRequest, InitProducerIdResponse(producer_id=7))


def identified(
    world: ScriptedWorld, *answers: Answer, next_id: int = 8
) -> tuple[IdempotentProducer, ScriptedConnection]:
    """Return a producer with id 7, and the connection with its next responses."""
    producer = IdempotentProducer(world.context, "once", [PLACE])
    again = (InitProducerIdRequest, InitProducerIdResponse(producer_id=next_id))
    broker = world.answer(
        producer, IDENTIFIED, again, *((ProduceRequest, answer) for answer in answers)
    )
    world.play(producer._identify())
    return producer, broker


def test_a_batch_is_retried_with_its_bytes_until_it_is_acknowledged() -> None:
    with scripted_world() as world:
        busy = produced(ErrorCode.KAFKA_STORAGE_ERROR)
        producer, broker = identified(world, busy, busy, produced(offset=4))
        batch = producer._next()
        world.play(producer._insist(batch))
        first, *retries = broker.sent(ProduceRequest)
        assert retries == [first] * 2
        assert batch.acked
        assert world.records.partition(PLACE).end == 4 + len(batch.values)
        assert not world.findings.violations


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
@pytest.mark.parametrize("cuts", [0, 1])
def test_a_batch_in_sequence_is_rejected_only_after_a_loss(code: ErrorCode, cuts: int) -> None:
    with scripted_world() as world:
        producer, _ = identified(world, produced(code))
        world.records.partition(PLACE).cuts = cuts
        world.play(producer._insist(producer._next()))
        assert world.findings.broken == (set() if cuts else {Law.TAKEN})
        assert producer._identity == (8, 0)
        assert producer._sequences == {}


@pytest.mark.parametrize("begun", [False, True])
def test_a_later_batch_may_overtake_the_first_one_of_a_partition(begun: bool) -> None:
    with scripted_world() as world:
        code = produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        producer, _ = identified(world, *[produced(offset=0)] * begun, code)
        if begun:
            world.play(producer._insist(producer._next()))
        batch = producer._next()
        batch.followed = True
        world.play(producer._insist(batch))
        assert world.findings.broken == ({Law.TAKEN} if begun else set())


def test_a_batch_behind_a_gap_must_be_rejected() -> None:
    with scripted_world() as world:
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer, _ = identified(world, produced(code), produced(offset=9))
        producer._sequences[PLACE] = 3
        world.play(producer._skip_sequence(PLACE))
        assert not world.findings.violations
        world.play(producer._skip_sequence(PLACE))
        assert world.findings.broken == {Law.NO_GAP}


@pytest.mark.parametrize(("offset", "right"), [(4, True), (-1, True), (9, False)])
def test_a_repeated_batch_keeps_its_offset(offset: int, right: bool) -> None:
    with scripted_world() as world:
        producer, _ = identified(world, produced(offset=offset))
        world.play(producer._repeat(producer._next(), 4))
        assert world.findings.broken == (set() if right else {Law.SAME_BATCH})


def test_a_producer_id_is_assigned_once() -> None:
    with scripted_world() as world:
        producer, _ = identified(world, next_id=7)
        world.play(producer._identify())
        assert world.findings.broken == {Law.NEW_IDENTITY}


def test_sequences_continue_in_each_partition() -> None:
    with scripted_world() as world:
        producer, _ = identified(world)
        batches = [producer._next() for _ in range(3)]
        assert producer._sequences == {PLACE: sum(len(batch.values) for batch in batches)}


def test_an_error_that_no_client_expects() -> None:
    with scripted_world() as world:
        producer, broker = identified(world, produced(ErrorCode.INVALID_RECORD))
        world.play(producer._insist(producer._next()))
        assert world.findings.broken == {Law.ANSWERS}
        assert len(broker.sent(ProduceRequest)) == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_plain_producer_waits_for_acknowledgements_unless_acks_is_0(acks: int) -> None:
    with scripted_world() as world:
        producer = PlainProducer(world.context, "plain", [PLACE], acks)
        broker = world.answer(producer, (ProduceRequest, produced()))
        world.play_for(5.0, producer)
        assert {request.acks for request in broker.sent(ProduceRequest)} == {acks}
        assert (world.findings.counts["acked"] == 0) is (acks == 0)
        assert not world.findings.violations


def test_a_plain_producer_gives_up_after_three_errors_without_a_fault() -> None:
    with scripted_world() as world:
        producer = PlainProducer(world.context, "plain", [PLACE], 1)
        broker = world.answer(producer, (ProduceRequest, produced(ErrorCode.REQUEST_TIMED_OUT)))
        world.play_for(0.0, producer)
        assert len(broker.sent(ProduceRequest)) in (0, 3)
        world.conditions.is_ending = False
        world.play_for(1.0, producer)
        assert len(broker.sent(ProduceRequest)) % 3 == 0
        assert world.findings.broken == {Law.PROGRESS}
