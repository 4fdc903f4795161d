from __future__ import annotations

import pytest

from lakelog.cli.commands.group import GroupProgress, _duration, _lag, document, listing
from lakelog.cli.main import run
from lakelog.client.admin.groups import Group, GroupListing, GroupMember

_MEMBER = GroupMember("m-1", None, "app", "/127.0.0.1", (("orders", 0), ("orders", 2)))
_GROUP = Group("billing", "Stable", "consumer", "range", (_MEMBER,))


def test_a_listing_names_every_group() -> None:
    rows = listing([GroupListing("a", "consumer", "Stable", "classic"), GroupListing("b", "")]).rows
    assert [row["group"] for row in rows] == ["a", "b"]
    unknown = dict.fromkeys(("state", "type", "protocol_type", "members", "lag"))
    assert rows[1] == {"group": "b", **unknown}


def test_a_listing_has_members_and_lag() -> None:
    progress = {"a": GroupProgress(2, 5)}
    (row,) = listing([GroupListing("a", "consumer", "Stable", "classic")], progress).rows
    assert (row["members"], row["lag"]) == (2, 5)


@pytest.mark.parametrize(
    ("committed", "lag"),
    [
        ({("orders", 0): 4, ("orders", 1): 9}, 7),
        ({("orders", 0): 4, ("gone", 0): 9}, None),
        ({}, None),
    ],
)
def test_a_lag_is_known_if_that_of_each_partition_is(
    committed: dict[tuple[str, int], int], lag: int | None
) -> None:
    assert _lag(committed, {("orders", 0): 10, ("orders", 1): 10}) == lag


@pytest.mark.parametrize(
    ("text", "duration"), [("PT1H30M", "1h30m"), ("P7D", "7d"), ("P1DT2H", "1d2h"), ("5m", "5m")]
)
def test_a_duration_may_be_written_as_kafka_s_tool_does(text: str, duration: str) -> None:
    assert _duration(text) == duration


def test_a_description_joins_commits_ends_and_owners() -> None:
    committed = {("orders", 0): 4, ("orders", 1): 9, ("gone", 0): 7}
    ends = {("orders", 0): 10, ("orders", 1): 9, ("orders", 2): 3}
    data = document(_GROUP, committed, ends, {("orders", 0): 12.34567, ("orders", 1): 0.0}).data
    rows = {(row["topic"], row["partition"]): row for row in data["offsets"]}
    assert [row["lag"] for row in rows.values()] == [None, 6, 0, None]
    assert rows["orders", 0]["member_id"] == "m-1"
    assert rows["orders", 1]["member_id"] is None
    assert rows["orders", 2]["committed_offset"] is None
    assert rows["gone", 0]["log_end_offset"] is None
    assert data["lag"] is None, "that of orders-2 may be any number"
    assert [row["lag_seconds"] for row in rows.values()] == [None, 12.346, 0.0, None]
    assert (data["lag_seconds"], data["type"], data["epoch"]) == (None, "classic", None)
    assert data["members"][0]["partitions"] == ["orders-0", "orders-2"]


def test_the_lag_of_a_group_is_that_of_its_partitions() -> None:
    committed, ends = {("orders", 0): 4, ("orders", 2): 1}, {("orders", 0): 10, ("orders", 2): 3}
    data = document(_GROUP, committed, ends, {("orders", 0): 2.0, ("orders", 2): 3.5}).data
    assert (data["lag"], data["lag_seconds"]) == (8, 3.5)
    half = document(_GROUP, {("orders", 0): 10}, ends, {("orders", 0): 0.0}).data
    assert [row["lag"] for row in half["offsets"]] == [0, None]
    assert (half["lag"], half["lag_seconds"]) == (None, None)


def test_lag_of_nothing_is_unknown() -> None:
    empty = Group("x", "Empty", "", "", ())
    assert document(empty, {}, {}, {}).data["lag"] is None


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--to", "start", "--shift-by", "1"],
        ["--to-latest", "--to-earliest"],
        ["--to-offset", "-5"],
        ["--by-duration", "soon"],
        ["--by-duration", "1h", "--to-latest"],
    ],
)
def test_a_reset_says_where_to_in_one_way(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["group", "reset", "g", *options]) == 2
    assert "LL0902" in capsys.readouterr().err
