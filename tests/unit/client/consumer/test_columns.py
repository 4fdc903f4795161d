"""Columns of a position, and their agreement with records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.columns import COLUMNS, wanted_columns
from lakelog.client.consumer.fetch import Fetched, FetchTarget
from lakelog.client.consumer.positions import ConsumerRecord, Position
from lakelog.client.errors import ClientError
from lakelog.client.view import Partition, Topic
from lakelog.columns.packages import MissingPackageError
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec

TOPIC = Topic("t", b"i" * 16, (Partition(0, 1),))
LIMIT = 1 << 20
ALL = wanted_columns(None, null_timestamps=False)
BAD_TIME = 2**60


def batch(
    base: int, values: list[bytes], *, epoch: int = 0, codec: Codec = Codec.NONE, **flags: bool
) -> bytes:
    builder = BatchBuilder(codec)
    for number, value in enumerate(values):
        time = BAD_TIME if value == b"bad time" else base + number
        builder.append(time, b"k%d" % number, value, [("h", value)] if number % 2 else [])
    return bytes(builder.build(base_offset=base, leader_epoch=epoch, **flags))


def damaged(data: bytes) -> bytes:
    return data[:61] + bytes([data[61] ^ 2]) + data[62:]


def filled(batches: list[bytes], start: int = 0) -> Position:
    position = Position(("t", 0), start)
    heads = [read_header(data) for data in batches]
    fetched = [(head, memoryview(data)) for head, data in zip(heads, batches, strict=True)]
    last = heads[-1]
    target = FetchTarget(TOPIC, 0, start, 1000)
    end, epoch = last.last_offset + 1, last.partition_leader_epoch
    position.add(Fetched(target, ErrorCode.NONE, end, 0, fetched, end, epoch))
    return position


def columns(position: Position, count: int = 1000, max_bytes: int = 1 << 20, **wanted: Any) -> Any:
    """Return the offsets and values of the next rows."""
    chosen = wanted_columns(**wanted) if wanted else ALL
    table = chosen.table(position.take_columns(chosen, count, max_bytes, LIMIT))
    return list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def as_record(row: dict[str, Any]) -> ConsumerRecord:
    headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
    time = int(row["timestamp"].timestamp() * 1000 + 0.5)
    position = (row["topic"], row["partition"], row["offset"], time)
    return ConsumerRecord(*position, row["key"], row["value"], headers, row["timestampType"])


def test_columns_are_named_and_typed_as_in_the_spark_source() -> None:
    assert ALL.schema.names == list(COLUMNS)
    assert ALL.schema.field("headers").type == pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    )
    table = ALL.table(filled([batch(5, [b"a", b"b"])], 6).take_columns(ALL, 9, LIMIT, LIMIT))
    assert [as_record(row) for row in table.to_pylist()] == [
        ConsumerRecord("t", 0, 6, 6, b"k1", b"b", (("h", b"b"),), 0)
    ]
    assert ALL.table([]).schema == ALL.schema


def test_only_wanted_columns_in_their_order() -> None:
    wanted = wanted_columns(["partition", "value", "topic"], null_timestamps=False)
    assert wanted.decoded == ["offset", "value"]
    [rows] = filled([batch(0, [b"a"])]).take_columns(wanted, 9, LIMIT, LIMIT)
    assert rows.to_pydict() == {"partition": [0], "value": [b"a"], "topic": ["t"]}


@pytest.mark.parametrize("names", [["offset", "nothing"], ["key", "key"], []])
def test_wrong_columns_are_an_error(names: list[str]) -> None:
    with pytest.raises(ValueError, match="column"):
        wanted_columns(names, null_timestamps=False)


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install '\.\[arrow\]'"):
        wanted_columns(None, null_timestamps=False)


def test_a_batch_may_be_returned_in_parts() -> None:
    position = filled([batch(0, [b"0", b"1", b"2"], epoch=1), batch(3, [b"3"], epoch=2)])
    assert columns(position, 2) == [(0, b"0"), (1, b"1")]
    assert (position.offset, position.epoch) == (2, 1)
    assert columns(position, 2) == [(2, b"2"), (3, b"3")]
    assert (position.offset, position.epoch, position.has_records) == (4, 2, False)


def test_a_small_limit_of_bytes_still_returns_a_record() -> None:
    position = filled([batch(0, [b"x" * 1000] * 10)])
    assert len(columns(position, max_bytes=1)) == 1
    few = columns(position, max_bytes=3500)
    assert 2 <= len(few) <= 4
    assert len(columns(position)) == 9 - len(few)


def test_markers_and_missing_offsets_are_passed() -> None:
    marker = BatchBuilder()
    marker.append(0, b"\0\0\0\1", b"\0" * 6)
    end = bytes(marker.build(base_offset=1, is_control=True, leader_epoch=4))
    position = filled([batch(0, [b"0"]), end])
    assert columns(position) == [(0, b"0")]
    assert (position.offset, position.epoch, position.has_records) == (2, 4, False)
    only = filled([end], 1)
    assert (columns(only), only.offset) == ([], 2)


def test_other_columns_than_before_continue_at_the_position() -> None:
    position = filled([batch(0, [b"0", b"1", b"2", b"3"])])
    assert columns(position, 1) == [(0, b"0")]
    assert columns(position, 1, columns=["offset", "value"], null_timestamps=False) == [(1, b"1")]
    assert [record.offset for record in position.take(1, LIMIT)] == [2]
    assert columns(position) == [(3, b"3")]


@pytest.mark.parametrize("as_columns", [False, True])
def test_returned_records_do_not_keep_the_response_in_memory(as_columns: bool) -> None:
    position = filled([batch(0, [b"0"])])
    view = position._batches[0][1]
    references = sys.getrefcount(view)
    assert len(columns(position) if as_columns else position.take(9, LIMIT)) == 1
    assert sys.getrefcount(view) == references - 1


def test_a_seek_drops_decoded_rows() -> None:
    position = filled([batch(0, [b"0", b"1"])])
    assert columns(position, 1) == [(0, b"0")]
    position.seek(7)
    assert not position.has_records


@pytest.mark.parametrize("before", [[], [batch(0, [b"0"]), batch(1, [b"1"])]])
def test_rows_before_a_damaged_batch_are_returned_first(before: list[bytes]) -> None:
    start = len(before)
    bad = damaged(batch(start, [b"x", b"y"]))
    position = filled([*before, bad, batch(start + 2, [b"2"])])
    if before:
        assert columns(position) == [(0, b"0"), (1, b"1")]
    for _ in range(2):
        with pytest.raises(ClientError, match="damaged") as caught:
            columns(position)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert f"t-0, batch at offsets {start} to {start + 1}" in str(caught.value)
        assert f"the next batch begins at {start + 2}" in str(caught.value)
        assert position.offset == start


def test_an_impossible_timestamp_is_named_after_the_rows_before_it() -> None:
    batches = [batch(0, [b"0"]), batch(1, [b"1", b"bad time", b"3"]), batch(4, [b"4"])]
    position = filled(batches)
    assert columns(position) == [(0, b"0"), (1, b"1")]
    for _ in range(2):
        with pytest.raises(
            ClientError, match=r"t-0@2: the timestamp 1152921504606846976"
        ) as caught:
            columns(position)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        assert caught.value.hint.endswith("or seek to 3.")
        assert position.offset == 2
    assert columns(position, columns=["offset", "value"], null_timestamps=False) == [
        (2, b"bad time"), (3, b"3"), (4, b"4"),
    ]  # fmt: skip
    again = filled(batches)
    wanted = wanted_columns(None, null_timestamps=True)
    table = wanted.table(again.take_columns(wanted, 9, LIMIT, LIMIT))
    assert table["rawTimestamp"].to_pylist() == [None, None, BAD_TIME, None, None]


def test_an_impossible_timestamp_after_a_gap() -> None:
    builder = BatchBuilder()
    builder.append(BAD_TIME, None, b"v")
    data = builder.build(base_offset=5)
    data[61 + 3] = 2 * 2  # the offset delta of the only record
    data[23:27] = (4).to_bytes(4, "big")
    position = filled([bytes(data)])
    for _ in range(2):
        with pytest.raises(ClientError, match="t-0@7"):
            columns(position)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    found: list[bytes] = []
    base = 0
    for _ in range(draw(st.integers(1, 6))):
        base += draw(st.integers(0, 2))
        kind = draw(st.sampled_from(["plain", "plain", "zstd", "marker", "damaged", "bad time"]))
        values = [b"%d" % (base + n) for n in range(draw(st.integers(1, 5)))]
        if kind == "bad time":
            values[draw(st.integers(0, len(values) - 1))] = b"bad time"
        codec = Codec.ZSTD if kind == "zstd" else Codec.NONE
        data = batch(base, values, epoch=len(found), codec=codec, is_control=kind == "marker")
        found.append(damaged(data) if kind == "damaged" else data)
        base += len(values)
    return found


def polls(position: Position, draw: Any, *, mixed: bool) -> Iterator[object]:
    """Yield the records, the place of each error, and the place of the end."""
    while position.has_records:
        count = draw(st.integers(1, 6))
        try:
            if mixed and draw(st.booleans()):
                max_bytes = draw(st.sampled_from([1, 100, 10_000]))
                wanted = draw(st.sampled_from([NULLS, VALUES]))
                table = wanted.table(position.take_columns(wanted, count, max_bytes, LIMIT))
                assert table.num_rows <= count
                yield from zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
            else:
                yield from [(each.offset, each.value) for each in position.take(count, LIMIT)]
        except ClientError as error:
            yield error.code, position.offset
            after = int(str(error).rpartition(" ")[2])
            position._undecode()
            while position._batches and position._batches[0][0].last_offset < after:
                position._batches.popleft()
            position.offset = after
    yield "end", position.offset, position.epoch


NULLS = wanted_columns(["offset", "timestamp", "value"], null_timestamps=True)
VALUES = wanted_columns(["value", "offset"], null_timestamps=False)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(logs(), st.data())
def test_records_and_columns_in_any_mixture_are_the_same_log(
    log: list[bytes], data: st.DataObject
) -> None:
    expected = list(polls(filled(log), data.draw, mixed=False))
    assert list(polls(filled(log), data.draw, mixed=True)) == expected
