"""Offsets that positions select in the partitions of a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.cli.bounds import check_reached, read_bounds, resolve_position
from lakelog.cli.positions import Anchor, Bounds, Position
from lakelog.client.admin import Admin
from lakelog.client.errors import OffsetOutOfRangeError
from lakelog.client.offsets import EARLIEST, LATEST
from lakelog.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from scripted_broker import ScriptedBroker

BOTH = [("orders", 0), ("orders", 1)]


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return 3 to 9 as bounds, with 7 as the last stable offset, and 5 for times."""
    rows = []
    for row in request.topics[0].partitions:
        end = 7 if request.isolation_level else 9
        late = -1 if row.partition_index else 5
        offset = {EARLIEST: 3, LATEST: end}.get(row.timestamp, late)
        rows.append(
            ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=offset)
        )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=rows)])


@pytest.fixture
def admin() -> Iterator[Admin]:
    with ScriptedBroker() as broker, Admin(broker.address, timeout_s=10.0) as admin:
        broker.on(ListOffsetsRequest, offsets)
        yield admin


@pytest.mark.parametrize(("read_committed", "end"), [(False, 9), (True, 7)])
def test_the_end_depends_on_the_isolation_level(
    admin: Admin, read_committed: bool, end: int
) -> None:
    bounds = read_bounds(admin, BOTH, read_committed=read_committed)
    assert bounds == dict.fromkeys(BOTH, Bounds(3, end))


def test_a_time_after_the_last_record_selects_the_end(admin: Admin) -> None:
    bounds = read_bounds(admin, BOTH)
    found = resolve_position(admin, Position(Anchor.TIME, 1_000), bounds)
    assert found == {("orders", 0): 5, ("orders", 1): 9}
    assert resolve_position(admin, Position(Anchor.END, 2), bounds) == dict.fromkeys(BOTH, 7)


def test_an_offset_beyond_a_partition_is_reported_with_the_hint() -> None:
    bounds = {("orders", 0): Bounds(3, 9), ("orders", 1): Bounds(0, 20)}
    check_reached(Position(Anchor.OFFSET, 9), bounds)
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 has offsets 3 to 9") as error:
        check_reached(Position(Anchor.OFFSET, 10), bounds, "choose partitions")
    assert error.value.hint == "choose partitions"
