"""Offsets that positions select in the partitions of a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.cli.commands.group import plan
from lakelog.cli.failures import CliError
from lakelog.cli.positions import (
    Anchor,
    Bounds,
    Position,
    before_start,
    beyond,
    check_inside,
    check_reached,
    cut_short,
    iso_utc,
    known_bounds,
    parse_duration_s,
    parse_moment_ms,
    parse_partitions,
    parse_position,
    read_bounds,
    resolve,
    resolve_position,
    shifted,
)
from lakelog.client.admin import Admin
from lakelog.client.errors import OffsetOutOfRangeError
from lakelog.client.offsets import EARLIEST, LATEST
from lakelog.protocol.fetch import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from scripted_broker import ScriptedBroker

_NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", Position(Anchor.START)),
        ("earliest", Position(Anchor.START)),
        ("end", Position(Anchor.END)),
        ("42", Position(Anchor.OFFSET, 42)),
        ("+10", Position(Anchor.START, 10)),
        ("-10", Position(Anchor.END, 10)),
        ("@1700000000000", Position(Anchor.TIME, 1_700_000_000_000)),
        ("@-1h", Position(Anchor.TIME, _NOW_MS - 3_600_000)),
        ("@1970-01-02", Position(Anchor.TIME, 86_400_000)),
        ("@1970-01-01T01:00:00+01:00", Position(Anchor.TIME, 0)),
        ("@-100000000d", Position(Anchor.TIME, 0)),
        ("@1969-12-31T23:59:59.999Z", Position(Anchor.TIME, 0)),
    ],
)
def test_forms(text: str, position: Position) -> None:
    assert parse_position(text, _NOW_MS) == position


@pytest.mark.parametrize("text", ["", "begin", "1.5", "--1", "@", "@tomorrow", "+-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_position(text, _NOW_MS)
    assert caught.value.code == "LL0902"


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (Position(Anchor.START), {0: 5, 1: 0}),
        (Position(Anchor.END), {0: 20, 1: 3}),
        (Position(Anchor.START, 4), {0: 9, 1: 3}),
        (Position(Anchor.END, 10), {0: 10, 1: 0}),
        (Position(Anchor.OFFSET, 7), {0: 7, 1: 3}),
        (Position(Anchor.TIME, 1000), {0: 12, 1: 3}),
    ],
)
def test_offsets_stay_within_the_partition(position: Position, offsets: dict[int, int]) -> None:
    bounds = {0: Bounds(5, 20), 1: Bounds(0, 3)}
    assert resolve(position, bounds, {0: 12}) == offsets


@pytest.mark.parametrize(
    ("position", "too_far", "too_early"),
    [
        (Position(Anchor.OFFSET, 21), {0: 21, 1: 21}, []),
        (Position(Anchor.OFFSET, 20), {1: 20}, []),
        (Position(Anchor.OFFSET, 3), {}, [0]),
        (Position(Anchor.START, 4), {1: 4}, []),
        (Position(Anchor.START, 16), {0: 21, 1: 16}, []),
        (Position(Anchor.END, 99), {}, []),
        (Position(Anchor.TIME, 99), {}, []),
    ],
)
def test_partitions_that_lack_an_offset(
    position: Position, too_far: dict[int, int], too_early: list[int]
) -> None:
    bounds = {0: Bounds(5, 20), 1: Bounds(0, 3)}
    assert beyond(position, bounds) == too_far
    assert before_start(position, bounds) == too_early


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("5", 5),
        ("1.5m", 90),
        ("2h", 7200),
        ("7d", 604_800),
        ("1h30m", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "10 parsecs", "1e3"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse_duration_s(text)


def test_moments() -> None:
    assert parse_moment_ms("now", 7) == 7
    assert parse_moment_ms("1970-01-01T00:00:01.500Z", 7) == 1500


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_500, "1970-01-01T00:00:01.500Z"),
        (-1, None),
        (2**62, None),
    ],
)
def test_iso_never_fails(timestamp_ms: int, text: str | None) -> None:
    assert iso_utc(timestamp_ms) == text


def test_shifting_stays_within_the_log() -> None:
    bounds = {("t", 0): Bounds(5, 20), ("t", 1): Bounds(0, 3), ("t", 2): Bounds(0, 3)}
    committed = {("t", 0): 10, ("t", 1): 2}
    assert shifted(bounds, committed, -7) == {("t", 0): 5, ("t", 1): 0}
    assert shifted(bounds, committed, 5) == {("t", 0): 15, ("t", 1): 3}
    assert cut_short(committed, shifted(bounds, committed, 5), 5) == [("t", 1)]


@pytest.mark.parametrize("offset", [4, 21])
def test_an_offset_outside_of_a_partition_is_refused(offset: int) -> None:
    bounds = {("t", 0): Bounds(5, 20), ("t", 1): Bounds(0, 30)}
    with pytest.raises(OffsetOutOfRangeError, match=f"t-0 has offsets 5 to 20 .*, not {offset}"):
        check_inside(Position(Anchor.OFFSET, offset), bounds)
    for inside in (5, 20):
        check_inside(Position(Anchor.OFFSET, inside), bounds)


def test_partitions_of_a_topic() -> None:
    assert parse_partitions("orders") == ("orders", [])
    assert parse_partitions("orders:0,12") == ("orders", [0, 12])
    for text in ("orders:", "orders:a", "orders:1,", "orders:-1", "orders:1:2"):
        with pytest.raises(CliError, match="neither NAME nor NAME:0,2"):
            parse_partitions(text)


def test_a_plan_shows_what_changes() -> None:
    planned = plan("g", {("t", 0): 10}, {("t", 1): 4, ("t", 0): 3}, executed=False).data
    assert planned["executed"] is False
    assert [(row["new_offset"], row["change"]) for row in planned["plan"]] == [(3, -7), (4, None)]
