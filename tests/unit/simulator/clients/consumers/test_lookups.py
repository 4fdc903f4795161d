"""Lookups by time and by leader epoch, compared with known records."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.protocol.fetch import (
    EpochEndOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from scripted_clients import ScriptedWorld, list_response, listed, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import HiddenRange
from simulator.clients.client import Client
from simulator.clients.consumers.lookups import look_up_epoch, look_up_time

PLACE = ("topic", 0)
TIMES = (100, 200, 200, 300)


def fill(world: ScriptedWorld) -> None:
    for offset, time in enumerate(TIMES):
        value = b"%d" % offset
        world.records.will_send(PLACE, [value], timestamp=time)
        world.records.acknowledged(PLACE, offset, [value])


def look_up_times(world: ScriptedWorld, shift: int, *, code: int = 0) -> None:
    """Look up many times; each response is the right offset, shifted."""
    client = Client(world.context, "reader")

    async def many() -> None:
        for _ in range(30):
            await look_up_time(client, PLACE)

    def answer(request: Any) -> ListOffsetsResponse:
        wanted = request.topics[0].partitions[0].timestamp
        found = next((at for at, time in enumerate(TIMES) if time >= wanted), None)
        return list_response(PLACE, -1 if found is None else found + shift, code)

    world.answer(client, (ListOffsetsRequest, answer))
    world.play(many())


@pytest.mark.parametrize(("shift", "right"), [(0, True), (1, False), (-1, False)])
def test_a_lookup_by_time_finds_the_first_record(shift: int, right: bool) -> None:
    with scripted_world() as world:
        fill(world)
        look_up_times(world, shift)
        assert world.findings.broken == (set() if right else {Law.AT_TIME})
        assert world.findings.counts["lookups by time"] == 30


def test_records_below_the_start_and_behind_damage_are_excused() -> None:
    with scripted_world() as world:
        fill(world)
        world.records.partition(PLACE).hidden.append(HiddenRange(0, 0, 1))
        look_up_times(world, 1)
        assert not world.findings.violations
    with scripted_world() as world:
        fill(world)
        world.records.partition(PLACE).start = len(TIMES)
        look_up_times(world, 1)
        assert not world.findings.violations


def test_an_error_and_a_lost_response_prove_nothing() -> None:
    with scripted_world() as world:
        fill(world)
        look_up_times(world, 1, code=6)
        client = Client(world.context, "other")
        world.answer(client, (ListOffsetsRequest, None))
        world.play(look_up_time(client, PLACE))
        assert not world.findings.violations
        assert not world.findings.counts["lookups by time"]


def test_a_partition_without_known_times_is_not_asked() -> None:
    with scripted_world() as world:
        client = Client(world.context, "reader")
        broker = world.answer(client)
        world.play(look_up_time(client, PLACE))
        assert broker.requests == []


def epoch_end(epoch: int, end: int) -> OffsetForLeaderEpochResponse:
    part = EpochEndOffset(error_code=0, partition=0, leader_epoch=epoch, end_offset=end)
    return OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic="topic", partitions=[part])]
    )


@pytest.mark.parametrize(
    ("epoch", "end", "start", "right"),
    [
        (0, 4, 0, True),
        (0, 3, 0, False),  # the batch at 3 is of epoch 0, too
        (0, 8, 0, False),  # the batch at 7 is of a later epoch
        (0, 8, 8, True),  # both were deleted
        (9, 10, 0, False),  # later than the requested epoch
        (-1, -1, 0, False),  # the epoch is known
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(
    epoch: int, end: int, start: int, right: bool
) -> None:
    with scripted_world() as world:
        client = Client(world.context, "reader")
        world.records.deleted(PLACE, start)
        world.records.partition(PLACE).epochs = {3: 0, 7: 5}
        client.rng.randint = lambda a, b: 0  # type: ignore[method-assign]
        answer = (OffsetForLeaderEpochRequest, epoch_end(epoch, end))
        world.answer(client, answer, listed(start, 10))
        world.play(look_up_epoch(client, PLACE))
        assert world.findings.broken == (set() if right else {Law.EPOCH_END})
        assert world.findings.counts["lookups by epoch"] == 1
