from __future__ import annotations

import json

import pytest

from lakelog.tables.topic.offsets import (
    StreamOffset,
    from_items,
    items,
    parse_assign,
    parse_offsets,
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
