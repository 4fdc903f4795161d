from __future__ import annotations

import pytest

from lakelog.coordinator.partitioning import java_hash, partition_for


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
