from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.errors import BadRowError, ColumnError
from lakelog.columns.encoding.topics import TopicRows, as_table, split_topics

TABLE = pa.table({"topic": ["b", "a", "b"], "value": [b"0", b"1", b"2"]})


def content(parts: Any) -> list[tuple[str, dict[str, list[Any]]]]:
    return [(part.topic, part.table.to_pydict()) for part in parts]


def test_rows_of_each_topic_in_the_order_of_their_first_rows() -> None:
    assert content(split_topics(TABLE, None)) == [
        ("b", {"value": [b"0", b"2"]}),
        ("a", {"value": [b"1"]}),
    ]


def test_a_given_topic_replaces_the_column() -> None:
    assert content(split_topics(TABLE, "x")) == [("x", {"value": [b"0", b"1", b"2"]})]
    assert content(split_topics(TABLE.drop_columns(["topic"]), "x"))[0][0] == "x"


@pytest.mark.parametrize(
    "column", [pa.array(["a", None]).dictionary_encode(), pa.array(["a", None], pa.string_view())]
)
def test_topics_of_any_text_and_a_row_without_one(column: pa.Array) -> None:
    table = pa.table({"topic": column, "value": [b"0", b"1"]})
    assert content(split_topics(table[:1], None)) == [("a", {"value": [b"0"]})]
    with pytest.raises(BadRowError, match="row 1: the topic is null") as caught:
        split_topics(table, None)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_table_without_a_topic_is_an_error() -> None:
    with pytest.raises(ColumnError, match="the column 'topic' is missing"):
        split_topics(TABLE.drop_columns(["topic"]), None)
    with pytest.raises(ColumnError, match="the column 'topic' must be a string, not list"):
        split_topics(pa.table({"topic": [["a"]], "value": [b""]}), None)


def test_errors_name_the_row_of_the_whole_table() -> None:
    _, rows = split_topics(TABLE, None)
    with pytest.raises(BadRowError, match="row 1: too large"), rows.original_rows():
        raise BadRowError(0, "too large", ErrorCode.MESSAGE_TOO_LARGE)


def test_partitions_of_another_partitioner() -> None:
    table = pa.table({"value": [b""] * 3, "key": ["a", None, "ccc"], "partition": [None, None, 7]})
    for each, expected in ((table, [1, None, 7]), (table.drop_columns("partition"), [1, None, 3])):
        rows = TopicRows("t", each, None)
        rows.choose_partitions(len)
        assert rows.table["partition"].to_pylist() == expected
    rows = TopicRows("t", table.select(["value"]), None)
    rows.choose_partitions(len)
    assert rows.table.schema.names == ["value"]


def test_tables_batches_and_data_frames_are_tables() -> None:
    assert as_table(TABLE) is TABLE
    assert as_table(TABLE.to_batches()[0]).equals(TABLE)

    class Frame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return TABLE.__arrow_c_stream__(requested_schema)

    assert as_table(Frame()).equals(TABLE)
    with pytest.raises(TypeError, match="list is no table"):
        as_table([b"value"])
