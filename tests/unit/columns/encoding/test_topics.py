from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.columns import BadRowError, ColumnError
from lakelog.columns.encoding.rows import Limits, checked_rows
from lakelog.columns.encoding.topics import TopicRows, as_table, split_topics

TABLE = pa.table({"topic": ["b", "a", "b"], "value": [b"0", b"1", b"2"]})


def content(parts: Any) -> list[tuple[str, dict[str, list[Any]]]]:
    return [(part.topic, part.table.to_pydict()) for part in parts]


def test_rows_of_each_topic_in_the_order_of_their_first_rows() -> None:
    assert content(split_topics(TABLE, None)) == [
        ("b", {"value": [b"0", b"2"]}),
        ("a", {"value": [b"1"]}),
    ]


def _dictionary(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), values)


def _runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), values)


VIEW = pa.array(["x", "y"], pa.string_view())
PAIR = pa.struct([("key", pa.string_view()), ("value", pa.binary_view())])
KEY = pa.StructArray.from_arrays(
    [_dictionary(VIEW), pa.array([b"1", b"2", b"3"], pa.binary_view())], ["key", "value"]
)


@pytest.mark.parametrize("topics", [VIEW, VIEW.cast(pa.binary_view())], ids=["text", "bytes"])
@pytest.mark.parametrize("layout", [_dictionary, _runs])
def test_topics_may_be_dictionaries_and_runs_of_views(topics: pa.Array, layout: Any) -> None:
    table = pa.table({"topic": layout(topics), "value": [b"0", b"1", b"2"]})
    assert {part.topic: len(part.table) for part in split_topics(table, None)} == {"x": 2, "y": 1}


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("key", pa.array(["x", "y", "x"], pa.string_view())),
        ("key", _dictionary(VIEW)),
        ("key", _runs(VIEW)),
        ("partition", _runs(pa.array([1, 0]))),
        ("headers", pa.array([[{"key": "a", "value": b"b"}], None, []], pa.large_list(PAIR))),
        ("headers", pa.array([[("a", b"b")]] * 3, pa.map_(pa.string_view(), pa.binary_view()))),
        ("headers", pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), KEY)),
        ("headers", pa.nulls(3)),
    ],
)
def test_columns_of_any_layout_are_divided_by_topic(name: str, column: pa.Array) -> None:
    """Arrow itself takes no rows of views and of runs."""
    table = pa.table({"topic": ["b", "a", "b"], "value": ["0", "1", "2"], name: column})
    rows = column.to_pylist()
    found = {topic: content[name] for topic, content in content(split_topics(table, None))}
    assert found == {"b": [rows[0], rows[2]], "a": [rows[1]]}


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["a", "b"])])
def test_categories_of_polars_are_texts(kind: Any) -> None:
    texts = pl.Series(["b", "a", "b"]).cast(kind)
    frame = pl.DataFrame({"topic": texts, "value": texts, "key": texts})
    rows = [
        (part.topic, each.values.to_pylist(), each.keys.to_pylist())
        for part in split_topics(as_table(frame), None)
        for each in checked_rows(part.batches, Limits(3, 1000), 5)
        if each.keys is not None
    ]
    assert rows == [("b", [b"b", b"b"], [b"b", b"b"]), ("a", [b"a"], [b"a"])]


@pytest.mark.parametrize(
    ("name", "column", "text"),
    [
        ("headers", pa.array([[1], [2], [3]]), "the column 'headers' must be list"),
        ("offset", pa.array(["x", "y", "x"], pa.string_view()), "unknown column 'offset'"),
    ],
)
def test_wrong_columns_are_rejected_before_rows_are_divided(
    name: str, column: pa.Array, text: str
) -> None:
    table = pa.table({"topic": ["b", "a", "b"], "value": ["0", "1", "2"], name: column})
    with pytest.raises(ColumnError, match=text):
        split_topics(table, None)


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


def test_a_column_of_python_objects_is_no_column_of_their_addresses() -> None:
    frame = pl.DataFrame({"value": pl.Series(["a", b"b"], dtype=pl.Object)})
    with pytest.raises(ColumnError, match="column 'value' has polars' type Object"):
        as_table(frame)
