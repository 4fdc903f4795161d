"""Offsets that positions select in the partitions of a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.cli.bounds import check_reached, known_bounds, read_bounds, resolve_position
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


def test_bounds_are_known_where_both_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader of the second partition does not know its high watermark yet."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = offsets(request)
        for row in response.topics[0].partitions:
            if row.partition_index == 1 and request.topics[0].partitions[0].timestamp == LATEST:
                row.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
        return response

    monkeypatch.setattr("lakelog.client.offsets._KNOWN_WITHIN_S", 0.01)
    with ScriptedBroker() as broker, Admin(broker.address, timeout_s=10.0) as admin:
        broker.on(ListOffsetsRequest, answer)
        assert known_bounds(admin, BOTH) == {("orders", 0): Bounds(3, 9)}


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
