from __future__ import annotations

import pytest

from lakelog.cli.commands.group_plan import check_inside, cut_short, parse_partitions, plan, shifted
from lakelog.cli.failures import CliError
from lakelog.cli.positions import Anchor, Bounds, Position
from lakelog.client.errors import OffsetOutOfRangeError


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
