"""Verdicts of a consumer without a group about the responses to its fetches."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder
from scripted_clients import ScriptedWorld, listed, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import HiddenRange
from simulator.clients.consumers.consumer import Consumer

PLACE = ("topic", 0)


def consumer(world: ScriptedWorld) -> Consumer:
    return Consumer(world.context, "reader", [PLACE], committed=False)


def part(code: int = 0, records: bytes = b"", end: int = 100) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=end,
        last_stable_offset=end,
        records=records,
    )


def batch(offset: int, value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, value)
    built = builder.build(-1, -1, -1)
    patch_offset_and_epoch(built, 0, offset, 0)
    return bytes(built)


def test_a_read_value_moves_the_position_and_one_never_sent_is_a_violation() -> None:
    with scripted_world() as world:
        reader = consumer(world)
        world.records.will_send(PLACE, [b"a"])
        world.play(reader.take(PLACE, 4, part(records=batch(4, b"a"))))
        assert reader._positions == {PLACE: 5}
        assert not world.findings.violations
        world.play(reader.take(PLACE, 5, part(records=batch(5, b"b"))))
        assert world.findings.broken == {Law.WRITTEN}


@pytest.mark.parametrize(
    ("start", "end", "cuts", "position", "broken"),
    [
        (9, 20, 0, 9, set()),  # records were deleted
        (0, 20, 0, 5, {Law.OUT_OF_RANGE}),
        (5, 5, 0, 5, {Law.OUT_OF_RANGE}),
        (0, 4, 0, 4, {Law.END_KEPT}),
        (0, 4, 1, 4, set()),  # a fault cut the log
    ],
)
def test_an_offset_out_of_range(
    start: int, end: int, cuts: int, position: int, broken: set[Law]
) -> None:
    with scripted_world() as world:
        reader = consumer(world)
        world.records.deleted(PLACE, start)
        world.records.partition(PLACE).cuts = cuts
        world.answer(reader, listed(start, end))
        world.play(reader.take(PLACE, 5, part(ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert world.findings.broken == broken
        assert reader._positions == {PLACE: position}


@pytest.mark.parametrize("hidden", [False, True])
def test_damage_is_reported_only_where_a_fault_hid_records(hidden: bool) -> None:
    with scripted_world() as world:
        reader = consumer(world)
        if hidden:
            world.records.partition(PLACE).hidden.append(HiddenRange(5, 5, 6))
        world.play(reader.take(PLACE, 5, part(ErrorCode.CORRUPT_MESSAGE)))
        assert world.findings.broken == (set() if hidden else {Law.ANSWERS})
        assert reader._positions == {PLACE: 6 if hidden else 0}


def test_a_retriable_error_keeps_the_position() -> None:
    with scripted_world() as world:
        reader = consumer(world)
        world.play(reader.take(PLACE, 5, part(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        assert reader._positions == {PLACE: 0}
        assert not world.findings.violations


@pytest.mark.parametrize(("delay_s", "late"), [(0.001, False), (3.0, True)])
def test_a_fetch_may_not_wait_much_longer_than_max_wait_ms(delay_s: float, late: bool) -> None:
    empty = FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=[part()])])
    with scripted_world() as world:
        reader = consumer(world)
        broker = world.answer(reader, (FetchRequest, empty))
        broker.delay_s = delay_s
        world.play(reader._fetch(PLACE))
        assert world.findings.broken == ({Law.PROMPT} if late else set())


def test_a_successor_begins_at_the_start() -> None:
    with scripted_world() as world:
        reader = Consumer(world.context, "reader", [PLACE], committed=True)
        reader._positions[PLACE] = 9
        successor = reader.replaced()
    assert successor.name == "reader'1"
    assert successor._positions == {PLACE: 0}
    assert successor._committed
