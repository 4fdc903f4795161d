"""Partitions of keys, and the ids of children."""

from __future__ import annotations

import pytest

from lakelog.coordinator.keys import ChildId, child_id, coordinator_key, java_hash, partition_for
from sink_setup import Setup
from transaction_setup import in_virtual_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Values of String.hashCode, from jshell of OpenJDK 17.
        ("", 0),
        ("a", 97),
        ("console-consumer-42", 1109249087),
        ("polygenelubricants", -(2**31)),
        ("größe", 98762257),
        ("😀", 1772899),
        ("\ud83d", 0xD83D),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_partition_is_of_the_absolute_value() -> None:
    """Masking the sign bit, as for keys of records, would give 5."""
    assert java_hash("lakelog") == -54889643
    assert partition_for("lakelog", 50) == 43


def test_the_hash_without_a_positive_counterpart_is_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_every_partition_is_in_range() -> None:
    assert {partition_for(f"group-{i}", 7) for i in range(1000)} == set(range(7))


def test_a_childs_id_has_three_numbers_after_the_sink_id() -> None:
    assert child_id("daily/12/3/40") == ChildId("daily", 12, 3, 40)
    assert coordinator_key("daily/12/3/40") == "daily"


@pytest.mark.parametrize(
    "name",
    [
        "daily",
        "a/b",
        "daily/1/2",
        "daily/1/2/3/4",
        "/1/2/3",
        "d/1/2/x",
        "d/-1/2/3",
        "d/1/2/\u0663",
        "d/1/2/" + "9" * 20,
    ],
)
def test_ids_of_any_other_form_keep_their_partition(name: str) -> None:
    assert child_id(name) is None
    assert coordinator_key(name) == name


@in_virtual_time(partitions=50)
async def test_a_sink_and_all_its_children_have_one_coordinator(setup: Setup) -> None:
    partition_of = setup.coordinator.partition_for
    assert {partition_of(f"daily/{batch}/0/1") for batch in range(100)} == {partition_of("daily")}
    assert partition_of("team/daily") == partition_for("team/daily", 50)
