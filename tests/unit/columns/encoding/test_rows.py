from __future__ import annotations

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding import rows as module
from lakelog.columns.encoding.columns import BadRowError, ColumnError
from lakelog.columns.encoding.rows import EncodedBatch, Limits, Rows, checked_rows, joined
from lakelog.records.batch import HEADER_SIZE
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec

LIMITS = Limits(partitions=3, record_bytes=1000)


def read(table: pa.Table, limits: Limits = LIMITS) -> list[Rows]:
    return list(checked_rows(table.to_batches(), limits, 42))


def test_missing_columns_stay_missing() -> None:
    [rows] = read(pa.table({"value": [b"a", None]}))
    assert (rows.count, rows.keys, rows.headers, rows.partitions) == (2, None, None, None)
    assert rows.values.to_pylist() == [b"a", None]
    assert rows.timestamps.to_pylist() == [42, 42]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64(), pa.int32()], ids=str)
def test_partitions_of_any_integer(kind: pa.DataType) -> None:
    [rows] = read(pa.table({"value": [b""] * 3, "partition": pa.array([0, None, 2], kind)}))
    assert rows.partitions is not None
    assert (rows.partitions.type, rows.partitions.to_pylist()) == (pa.int32(), [0, None, 2])


@pytest.mark.parametrize("wrong", [-1, 3, 2**40])
def test_a_partition_that_does_not_exist_names_its_row(wrong: int) -> None:
    pieces = [pa.table({"value": [b"", b""], "partition": [0, each]}) for each in (None, wrong)]
    table = pa.concat_tables(pieces, promote_options="permissive")
    with pytest.raises(BadRowError, match=f"row 3: partition {wrong} does not exist") as caught:
        read(table)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_record_over_the_limit_names_its_row() -> None:
    pair = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    sizes = {"key": 300, "value": 300, "headers": 390}
    for name in sizes:
        exact = {each: size + (each == name) for each, size in sizes.items()}
        table = pa.table(
            {
                "key": [None, b"k" * exact["key"]],
                "value": [None, b"v" * exact["value"]],
                "headers": pa.array(
                    [None, [{"key": "h", "value": "v" * (exact["headers"] - 1)}]], pair
                ),
            }
        )
        with pytest.raises(BadRowError, match="row 1: a record of 1001 bytes exceeds") as caught:
            read(table)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert read(table, Limits(3, 1001))[0].count == 2


def test_a_dictionary_is_decoded_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of a dictionary takes its memory once, however many rows have it."""
    monkeypatch.setattr(module, "_BYTES_MAX", 4000)
    indices = pa.array([0] * 64, pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array([b"x" * 1000]))
    pieces = read(pa.table({"value": column}))
    assert [piece.count for piece in pieces] == [4] * 16
    assert all(piece.values.nbytes < 5000 for piece in pieces)


def test_long_tables_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_MAX", 10)
    pieces = read(pa.table({"value": [b"%d" % n for n in range(25)], "partition": [1] * 25}))
    assert [piece.count for piece in pieces] == [10, 10, 5]
    together = list(joined(pieces))
    assert [piece.count for piece in together] == [10, 10, 5]
    monkeypatch.setattr(module, "_ROWS_MAX", 20)
    assert [piece.count for piece in joined(pieces)] == [20, 5]
    values = [value for piece in joined(pieces) for value in piece.values.to_pylist()]
    assert values == [b"%d" % n for n in range(25)]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            pa.table({"value": [b""], "offset": [1]}),
            "unknown column 'offset'; expected some of key",
        ),
        (pa.table({"key": [b""]}), "the column 'value' is missing"),
        (pa.table([[b""], [b""]], ["value", "value"]), "the column 'value' exists more than once"),
        (pa.table({"value": [b""], "partition": ["1"]}), "'partition' must be an integer, not str"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_columns(table: pa.Table, reason: str) -> None:
    with pytest.raises(ColumnError, match=reason):
        read(table)


def test_batches_of_different_columns_are_an_error() -> None:
    tables = [pa.table({"value": [b""]}), pa.table({"value": [b""], "key": [b""]})]
    with pytest.raises(ColumnError, match="different columns"):
        list(checked_rows([table.to_batches()[0] for table in tables], LIMITS, 0))


def test_a_partition_beyond_63_bits_names_its_row() -> None:
    table = pa.table({"value": [b"", b""], "partition": pa.array([0, 2**64 - 1], pa.uint64())})
    with pytest.raises(BadRowError, match=f"row 1: partition {2**64 - 1} does not exist"):
        read(table)


@pytest.mark.parametrize("codec", list(Codec))
def test_it_equals_the_batch_of_a_builder_and_can_be_numbered_again(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    builder.append(7, b"k", b"v" * 100)
    builder.append(5, None, b"w" * 100)
    plain = BatchBuilder()
    plain.append(7, b"k", b"v" * 100)
    plain.append(5, None, b"w" * 100)
    content = bytearray(HEADER_SIZE) + plain.build()[HEADER_SIZE:]

    batch = EncodedBatch(content, codec, 3, 2, 7, 7)

    assert bytes(batch.build()) == bytes(builder.build())
    numbers = (9, 1, 40, 77)
    assert bytes(batch.build(*numbers, leader_epoch=2, is_transactional=True)) == bytes(
        builder.build(*numbers, leader_epoch=2, is_transactional=True)
    )
    assert batch.size_estimate == len(builder.build())
