from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.client.offsets import EpochEnd
from lakelog.tables.topic.errors import DataLossError
from lakelog.tables.topic.offsets import (
    OffsetRange,
    StreamOffset,
    TopicPartition,
    find_divergences,
    from_items,
    items,
    limit_offsets,
    offsets_in,
    parse_assign,
    parse_offsets,
    ranges_between,
    split_ranges,
)


def test_an_offset_survives_json_in_the_official_shape() -> None:
    point = StreamOffset({"b": {10: 7, 2: 5}, "a": {0: 1}}, {"a": "A" * 22, "b": "B" * 22})

    text = json.dumps(point.to_json())

    assert json.loads(text)["b"] == {"2": 5, "10": 7}
    assert StreamOffset.from_json(json.loads(text)) == point


def test_equal_points_have_equal_text() -> None:
    one = StreamOffset({"a": {0: 1, 1: 2}, "b": {0: 3}}, {"a": "x", "b": "y"})
    other = StreamOffset({"b": {0: 3}, "a": {1: 2, 0: 1}}, {"b": "y", "a": "x"})

    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_a_checkpoint_of_the_official_connector_is_read() -> None:
    point = StreamOffset.from_json({"orders": {"0": 23, "1": 0}})

    assert point.offsets == {"orders": {0: 23, 1: 0}}
    assert point.topic_ids == {}


def test_topic_ids_are_entries_without_partitions() -> None:
    """The official connector reads `Map[String, Map[Int, Long]]` and finds no partition there."""
    value = StreamOffset({"a": {0: 1}}, {"a": "id"}).to_json()

    assert value == {"a": {"0": 1}, "a@id": {}}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}'],
)
def test_offsets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_offsets(text)


def test_assign_names_partitions_once_and_in_order() -> None:
    assert parse_assign('{"b": [1, 0, 1], "a": [2]}') == (("b", 1), ("b", 0), ("a", 2))


@pytest.mark.parametrize("text", ['{"a": {"0": 1}}', '{"a": [-1]}', '{"a": [true]}', "nope"])
def test_assignments_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_assign(text)


def test_items_come_in_order_and_make_the_same_offsets_again() -> None:
    offsets = {"b": {1: 4, 0: 3}, "a": {0: 1}}

    assert list(items(offsets)) == [(("a", 0), 1), (("b", 0), 3), (("b", 1), 4)]
    assert from_items(dict(items(offsets))) == offsets


def test_leader_epochs_ride_in_the_name_of_the_entry() -> None:
    """Its value stays empty, so `format("kafka")` can continue from the checkpoint."""
    point = StreamOffset(
        {"a": {1: 9, 0: 4}, "b": {0: 1}}, {"a": "id", "b": "ib"}, {"a": {1: 7, 0: 5}}
    )

    value = json.loads(json.dumps(point.to_json()))

    assert value == {"a": {"0": 4, "1": 9}, "a@id@0:5,1:7": {}, "b": {"0": 1}, "b@ib": {}}
    assert StreamOffset.from_json(value) == point


def test_a_checkpoint_without_epochs_is_read() -> None:
    point = StreamOffset.from_json({"a": {"0": 4}, "a@id": {}})

    assert point == StreamOffset({"a": {0: 4}}, {"a": "id"})


@pytest.mark.parametrize("epochs", ["x", "0", "0:", ":1", "0:1,", "0:-1", "0:1:2"])
def test_epochs_that_are_none_are_refused(epochs: str) -> None:
    with pytest.raises(ValueError, match="leader epoch"):
        StreamOffset.from_json({"a": {"0": 4}, f"a@id@{epochs}": {}})


sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def ranges_of(lengths: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", p, 10, 10 + size) for p, size in enumerate(lengths) if size]


def test_ranges_lie_between_the_two_points() -> None:
    start = {"t": {0: 5, 1: 7}}
    end = {"t": {0: 8, 1: 7, 2: 3}}

    assert ranges_between(start, end) == [OffsetRange("t", 0, 5, 8), OffsetRange("t", 2, 0, 3)]


@given(sizes, st.integers(1, 20))
def test_splitting_keeps_every_offset_once(lengths: list[int], wanted: int) -> None:
    whole = ranges_of(lengths)

    parts = split_ranges(whole, wanted)

    def offsets(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
        return [(each.partition, o) for each in ranges for o in range(each.start, each.end)]

    assert offsets(parts) == offsets(whole)
    assert len(parts) >= min(wanted, sum(lengths)) or not whole


@given(sizes, st.integers(1, 300), st.none() | st.integers(1, 20))
def test_no_range_is_larger_than_the_limit(
    lengths: list[int], most: int, wanted: int | None
) -> None:
    whole = ranges_of(lengths)

    parts = split_ranges(whole, wanted, offsets_max=most)

    assert sum(each.size for each in parts) == sum(each.size for each in whole)
    assert all(0 < each.size <= most for each in parts)
    if wanted is None:
        assert len(parts) == sum(-(-each.size // most) for each in whole), "as few as possible"


def test_the_largest_range_is_split_most() -> None:
    parts = split_ranges(ranges_of([900, 100]), 5)

    assert [each.size for each in parts if each.partition == 0] == [225] * 4
    assert [each.size for each in parts if each.partition == 1] == [100]


@given(sizes, st.integers(1, 500))
def test_a_limit_is_met_closely_and_starves_no_partition(lengths: list[int], most: int) -> None:
    start = {"t": dict.fromkeys(range(len(lengths)), 10)}
    latest = {"t": {p: 10 + size for p, size in enumerate(lengths)}}

    limited = limit_offsets(start, latest, most)

    taken = [limited["t"][p] - 10 for p in range(len(lengths))]
    assert sum(taken) < most + len(lengths)
    assert sum(taken) >= min(most, sum(lengths))
    assert all(0 < got <= size for got, size in zip(taken, lengths, strict=True) if size)


class Samples:
    """Partitions with the bytes per offset of their records; `None` for a lost range."""

    def __init__(self, *sizes: float | None, first: int = 0) -> None:
        self.sizes = sizes
        self.first = first
        self.asked: list[tuple[int, int, int]] = []

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.first)

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        self.asked.append((partition, start, end))
        size = self.sizes[partition]
        if size is None:
            raise DataLossError("removed meanwhile")
        return size


def ranges(*ends: int) -> list[OffsetRange]:
    return [OffsetRange("t", p, 0, end) for p, end in enumerate(ends)]


def test_the_mean_of_partitions_counts_their_offsets() -> None:
    assert offsets_in(6_000, ranges(10, 30), Samples(100, 20)) == 150
    assert offsets_in(1, ranges(10), Samples(100)) == 1, "a batch has at least one record"


def test_records_that_left_the_log_have_a_guessed_size() -> None:
    source = Samples(976, None, first=4)
    assert offsets_in(10_000, ranges(10, 10), source) == 10
    assert source.asked == [(0, 4, 10), (1, 4, 10)]


def test_only_the_largest_partitions_are_sampled() -> None:
    source = Samples(*[10] * 40)
    offsets_in(100, ranges(*range(1, 41)), source)
    assert sorted(p for p, _, _ in source.asked) == list(range(24, 40))


class Log:
    """Epoch 5 has offsets up to 90, epoch 8 those from there to 150."""

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {key: self._end(epoch) for key, epoch in epochs.items()}

    def _end(self, epoch: int) -> EpochEnd:
        if epoch > 8:
            return EpochEnd(-1, -1)
        return EpochEnd(8, 150) if epoch == 8 else EpochEnd(5, 90)


def point(offset: int, epoch: int) -> StreamOffset:
    return StreamOffset({"t": {0: offset}}, {"t": "id"}, {"t": {0: epoch}})


def test_an_offset_below_the_cut_or_at_it_is_fine() -> None:
    assert find_divergences(Log(), point(90, 7)) == []
    assert find_divergences(Log(), point(150, 8)) == []


def test_a_log_that_was_cut_and_grew_again_is_named() -> None:
    (found,) = find_divergences(Log(), point(100, 7))

    assert found.restart == 90
    assert str(found) == (
        "the log of t-0 was cut and grew again: read up to offset 100 in leader epoch 7, but "
        "epoch 5 ends at 90. The records from there on were lost or replaced"
    )


def test_an_epoch_that_the_log_never_had_is_named() -> None:
    (found,) = find_divergences(Log(), point(100, 9))

    assert found.restart is None
    assert "leader epoch 9, an epoch that it no longer has" in str(found)


def test_offsets_without_epochs_are_not_asked_about() -> None:
    assert find_divergences(Log(), StreamOffset({"t": {0: 100}}, {"t": "id"})) == []
