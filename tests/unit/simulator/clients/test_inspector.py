"""The final reader: lost records, lost offsets, and markers that are not yet written."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    PartitionData,
)
from lakelog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from lakelog.records.batch import patch_offset_and_epoch
from lakelog.records.builder import BatchBuilder
from scripted_clients import ScriptedWorld, listed, scripted_world
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate
from simulator.clients.inspector import Inspector

PLACE = ("topic", 0)


def fetched(request: Any) -> FetchResponse:
    """Return the batch with the value a at offset 0, and no more."""
    builder = BatchBuilder()
    builder.append(0, None, b"a")
    batch = builder.build(-1, -1, -1)
    patch_offset_and_epoch(batch, 0, 0, 0)
    part = PartitionData(
        partition_index=0, high_watermark=1, last_stable_offset=1, records=bytes(batch)
    )
    return FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=[part])])


def offset(committed: int) -> OffsetFetchResponse:
    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=committed)
    topic = OffsetFetchResponseTopics(name="topic", partitions=[part])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="team", topics=[topic])])


def inspect(world: ScriptedWorld, *, stable: int = 1, committed: int = -1) -> int:
    """Inspect a partition that has one record; return the number of ListOffsets requests."""
    client = Inspector(world.context, "inspector", [PLACE])
    broker = world.answer(
        client,
        listed(0, 1, stable=stable),
        (FetchRequest, fetched),
        (OffsetFetchRequest, offset(committed)),
    )
    world.play(client.run())
    return len(broker.sent(ListOffsetsRequest))


def acknowledge(world: ScriptedWorld, *values: bytes) -> None:
    world.records.will_send(PLACE, values)
    world.records.acknowledged(PLACE, 0, values)


def test_every_acknowledged_record_must_be_read() -> None:
    with scripted_world() as world:
        acknowledge(world, b"a")
        inspect(world)
        assert not world.findings.violations
    with scripted_world() as world:
        acknowledge(world, b"a", b"b")
        inspect(world)
        assert world.findings.broken == {Law.KEPT}


@pytest.mark.parametrize(("committed", "broken"), [(1, set()), (-1, {Law.OFFSET_KEPT})])
def test_every_group_has_its_offsets(committed: int, broken: set[Law]) -> None:
    with scripted_world() as world:
        acknowledge(world, b"a")
        value = world.offsets.will_commit("team", PLACE)
        world.offsets.acknowledged("team", PLACE, value, {})
        inspect(world, committed=committed)
        assert world.findings.broken == broken


def test_markers_of_committed_transactions_are_awaited_for_a_while() -> None:
    with scripted_world() as world:
        transaction = world.records.begin("t")
        world.records.will_send(PLACE, [b"a"], transaction=transaction)
        world.records.acknowledged(PLACE, 0, [b"a"])
        transaction.fate, transaction.ends = Fate.COMMITTED, {PLACE: 2}
        inspect(world, stable=0)
        assert 10 < world.simulator.loop.time() - 10.0 < 30
        assert Law.WHOLE in world.findings.broken
