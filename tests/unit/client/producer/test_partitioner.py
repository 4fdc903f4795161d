from __future__ import annotations

import pytest

from lakelog.client.producer.partitioner import Sticky, by_key


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"", 275646681),
    ],
)
@pytest.mark.parametrize("count", [1, 7, 100])
def test_a_key_has_the_same_partition_as_in_java(key: bytes, java_hash: int, count: int) -> None:
    """The hashes are from `UtilsTest.testMurmur2` of Apache Kafka."""
    assert by_key("t", key, count) == (java_hash & 0x7FFFFFFF) % count


def test_records_without_a_key_fill_one_partition_after_the_other() -> None:
    """KIP-480."""
    sticky = Sticky(8)
    assert [sticky.current(3), sticky.current(3)] == [2, 2]
    sticky.move_on(2, 3)
    assert sticky.current(3) == 0


def test_a_full_batch_of_another_partition_changes_nothing() -> None:
    """Records with a key or a chosen partition fill it."""
    sticky = Sticky(8)
    sticky.move_on(1, 3)
    assert sticky.current(3) == 2


def test_a_topic_that_grows_keeps_the_choice_valid() -> None:
    sticky = Sticky(8)
    sticky.move_on(2, 3)
    assert 0 <= sticky.current(5) < 5
