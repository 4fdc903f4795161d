from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.base.errors import ErrorCode
from lakelog.base.murmur2 import partition_for_key
from lakelog.columns.encoding import encode as encoding
from lakelog.columns.encoding.columns import BadRowError, ColumnError
from lakelog.columns.encoding.encode import (
    RowEncoder,
    TopicRows,
    as_table,
    encode_plainly,
    split_topics,
)
from lakelog.columns.encoding.rows import Limits, checked_rows
from lakelog.columns.packages import CompiledOrPlain
from lakelog.records.batch import check_crc, read_header
from lakelog.records.compression import Codec
from lakelog.records.record import Record, decode_records

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process, which keeps the compiled loops."""

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BYTES: list[pa.DataType] = [
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
    pa.dictionary(pa.int8(), pa.binary()),
]

nullable = st.none() | st.binary(max_size=100)
header = st.fixed_dictionaries({"key": st.text(max_size=4), "value": nullable})
times = st.integers(-1, 2**63 - 2) | st.integers(NOW, NOW + 200)
row = st.tuples(
    nullable,
    nullable,
    st.none() | st.lists(header, max_size=3),
    st.none() | times,
    st.none() | st.integers(0, 2),
)


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    yield request.param


def encode(
    table: pa.Table | list[pa.RecordBatch], partitions: int = 3, **settings: Any
) -> list[tuple[int, bytes]]:
    """Return partition and bytes of each batch."""
    batches = table.to_batches() if isinstance(table, pa.Table) else table
    encoder = RowEncoder(partitions, **settings)
    return [
        (batch.partition, bytes(batch.build(17, 3, 5, is_transactional=True)))
        for batch in encoder.encode(batches, NOW)
    ]


def records(encoded: list[tuple[int, bytes]]) -> dict[int, list[Record]]:
    """Return the records of each partition, as lakelog's own decoder reads them."""
    found: dict[int, list[Record]] = {}
    for partition, batch in encoded:
        head = read_header(batch)
        assert check_crc(batch, 0, head)
        inside = decode_records(batch, head, 1 << 24)
        assert head.records_count == len(inside) == head.last_offset_delta + 1
        assert head.max_timestamp == max(record.timestamp for record in inside)
        found.setdefault(partition, []).extend(inside)
    return found


def values(encoded: list[tuple[int, bytes]]) -> dict[int, list[bytes | None]]:
    return {key: [record.value for record in rows] for key, rows in records(encoded).items()}


def test_all_columns_of_a_record(compiled: bool) -> None:
    table = pa.table(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array(["v", None]),
            "headers": pa.array([[{"key": "h", "value": None}], None], HEADERS),
            "timestamp": pa.array([NOW + 9, None], pa.timestamp("ms", "UTC")),
            "partition": pa.array([1, 1], pa.int32()),
        }
    )
    [(partition, batch)] = encode(table, compiled=compiled)
    head = read_header(batch)
    assert (partition, head.producer_id, head.producer_epoch, head.base_sequence) == (1, 17, 3, 5)
    assert head.is_transactional and not head.is_control
    assert decode_records(batch, head, 1 << 20) == [
        Record(0, NOW + 9, b"k", b"v", (("h", None),)),
        Record(1, NOW, None, None, ()),
    ]


def test_a_key_selects_the_partition_of_javas_producer(compiled: bool) -> None:
    keys = [b"x" * size for size in range(40)]
    table = pa.table({"key": keys, "value": keys})
    assert values(encode(table, 7, compiled=compiled)) == {
        partition: [key for key in keys if partition_for_key(key, 7) == partition]
        for partition in {partition_for_key(key, 7) for key in keys}
    }


def test_rows_without_a_key_fill_one_partition_after_the_other(compiled: bool) -> None:
    table = pa.table({"value": [b"x" * 100] * 25})
    encoder = RowEncoder(3, batch_bytes=1200, sticky=2, compiled=compiled)
    found = [
        (batch.partition, batch.count)
        for _ in range(2)
        for batch in encoder.encode(table.to_batches(), NOW)
    ]
    assert found == [(2, 10), (0, 10), (1, 5), (2, 10), (0, 10), (1, 5)]


def test_only_a_larger_record_exceeds_the_size_of_a_batch(compiled: bool) -> None:
    sizes = [400, 400, 5000, 400, 400, 400]
    table = pa.table({"value": [b"x" * size for size in sizes]})
    encoder = RowEncoder(1, batch_bytes=1000, compiled=compiled)
    batches = list(encoder.encode(table.to_batches(), NOW))
    assert [batch.count for batch in batches] == [2, 1, 2, 1]
    assert [batch.size_estimate <= 1000 for batch in batches] == [True, False, True, True]


def test_small_tables_are_joined_to_large_batches(compiled: bool) -> None:
    pieces = pa.table({"value": [b"%d" % n for n in range(300)]}).to_batches(max_chunksize=7)
    [(_, batch)] = encode(pieces, 1, compiled=compiled)
    assert read_header(batch).records_count == 300


def test_no_rows_give_no_batches(compiled: bool) -> None:
    assert encode(pa.table({"value": pa.array([], pa.binary())}), compiled=compiled) == []
    assert encode([], compiled=compiled) == []


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(compiled: bool, codec: Codec) -> None:
    table = pa.table({"value": [b"%d" % n * 20 for n in range(500)]})
    encoded = encode(table, 1, codec=codec, compiled=compiled)
    assert {read_header(batch).codec for _, batch in encoded} == {codec}
    assert values(encoded)[0] == table["value"].to_pylist()


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(row, max_size=60),
    kinds=st.tuples(st.sampled_from(BYTES), st.sampled_from(BYTES)),
    missing=st.sets(st.sampled_from(["key", "headers", "timestamp", "partition"])),
    cut=st.integers(0, 20),
    chunk=st.integers(1, 20),
    batch_bytes=st.integers(0, 2000),
    codec=st.sampled_from(list(Codec)),
)
def test_both_ways_give_the_same_bytes_and_lose_nothing(
    rows: list[tuple[Any, ...]],
    kinds: tuple[pa.DataType, pa.DataType],
    missing: set[str],
    cut: int,
    chunk: int,
    batch_bytes: int,
    codec: Codec,
) -> None:
    types = [*kinds, HEADERS, pa.int64(), pa.int32()]
    names = ["key", "value", "headers", "timestamp", "partition"]
    columns = {
        name: _array([row[index] for row in rows], types[index])
        for index, name in enumerate(names)
        if name not in missing
    }
    pieces = pa.table(columns).slice(cut).to_batches(max_chunksize=chunk)
    both = [
        encode(pieces, 3, batch_bytes=batch_bytes, codec=codec, compiled=compiled)
        for compiled in (False, True)
    ]
    assert both[0] == both[1]
    found = [each for inside in records(both[0]).values() for each in inside]
    given = [
        (
            None if "key" in missing else key,
            value,
            () if "headers" in missing else tuple((h["key"], h["value"]) for h in pairs or ()),
            NOW if "timestamp" in missing or time is None else time,
        )
        for key, value, pairs, time, _ in rows[cut:]
    ]
    assert sorted(map(repr, given)) == sorted(
        repr((each.key, each.value, each.headers, each.timestamp)) for each in found
    )


def _array(items: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(items, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(items, kind)


def test_a_bad_row_is_an_error_before_its_group_is_encoded(compiled: bool) -> None:
    table = pa.table({"value": [b"a", b"b"], "partition": [0, 3]})
    encoder = RowEncoder(3, compiled=compiled)
    with pytest.raises(BadRowError, match="row 1: partition 3 does not exist; the topic has 3"):
        next(encoder.encode(table.to_batches(), NOW))
    with pytest.raises(BadRowError, match="row 1: partition 3"):
        encoder.check(table.to_batches())


def test_a_table_without_values_is_an_error(compiled: bool) -> None:
    with pytest.raises(ColumnError, match="the column 'value' is missing"):
        encode(pa.table({"key": [b"a"]}), compiled=compiled)


def test_a_compiler_that_fails_only_makes_it_slow(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: bool) -> NoReturn:
        raise RuntimeError("no place for the cache")

    monkeypatch.setattr(encoding, "_encoders", CompiledOrPlain("Encoding", fail))
    for _ in range(2):
        assert len(encode(pa.table({"value": [b"v"]}), compiled=True)) == 1
    assert caplog.text.count("no place for the cache") == 1


def test_without_numba_a_line_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(encoding, "_encoders", CompiledOrPlain("Encoding", encoding._load))
    monkeypatch.setitem(sys.modules, "lakelog.columns.encoding.compiled", None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert len(encode(pa.table({"value": [b"v"]}), compiled=True)) == 1
    assert caplog.text.count("Encoding in plain Python") == 1
    assert caplog.text.count("pip install '.[fast]'") == 1


def test_a_process_that_writes_little_does_not_load_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(encoding, "_encoders", CompiledOrPlain("Encoding", asked.append))
    table = pa.table({"value": [b"v"] * 10})
    encode(table)
    assert (asked, encoding._encoders.plain_rows) == ([], 10)
    encoding._encoders.plain_rows = 10**6
    encode(table)
    assert asked == [False], "without the parts for headers"


def test_loaded_loops_encode_small_tables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_encoders", CompiledOrPlain("Encoding", encoding._load))
    table = pa.table({"value": [b"v"] * 10})
    encode(table, compiled=True)
    encode(table)
    assert encoding._encoders.plain_rows == 0


EXOTIC = [
    pa.array([1.5, None, 2]),
    pa.array([True, None, False]),
    pa.array([[1], None, []]),
    pa.array([{"a": 1}, None, {"a": 2}]),
    pa.array([1, None, 3], pa.date32()),
    pa.array([1, None, 3], pa.duration("s")),
    pa.array([1, None, 3], pa.decimal128(5)),
    pa.array([(1, 2, 3), None, (4, 5, 6)], pa.month_day_nano_interval()),
    pa.array([[("a", b"x")], None, []], pa.map_(pa.string(), pa.binary())),
    pa.array([5, None, 6]).dictionary_encode(),
    pa.array(["a", None, "b"]).dictionary_encode(),
    pa.RunEndEncodedArray.from_arrays([1, 3], pa.array([1, None])),
    pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 3, pa.binary(16))),
    pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    ),
    pa.nulls(3),
]


@pytest.mark.parametrize("name", ["key", "value", "headers", "timestamp", "partition"])
@pytest.mark.parametrize("column", EXOTIC, ids=lambda column: str(column.type))
def test_a_column_of_any_type_is_encoded_or_named(name: str, column: pa.Array) -> None:
    for start, count in ((0, 3), (1, 2), (3, 0)):
        table = pa.table({"value": [b"v"] * 3, name: column}).slice(start, count)
        both: list[object] = []
        for compiled in (False, True):
            try:
                both.append(encode(table, compiled=compiled))
            except (ColumnError, BadRowError) as error:
                assert name in str(error) or "row " in str(error)
                both.append(str(error))
        assert both[0] == both[1]


def test_a_full_batch_moves_rows_without_a_key_on() -> None:
    """Also if a row with a partition has filled it."""
    table = pa.table(
        {"value": [b"x" * 100] * 4, "partition": pa.array([None, 0, None, None], pa.int32())}
    )
    [rows] = checked_rows(table.to_batches(), Limits(2, 1000), 0)
    batches, sticky = encode_plainly(rows, 2, 0, 200, Codec.NONE)
    assert [(batch.partition, batch.count) for batch in batches] == [(0, 1), (0, 1), (1, 1), (1, 1)]
    assert sticky == 0


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
