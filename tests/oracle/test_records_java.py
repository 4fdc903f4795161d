"""Record batches against the classes of Apache Kafka's Java client, both ways, in every codec."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import kafka_jars
from lakelog.columns.encoding.encode import RowEncoder
from lakelog.records.batch import (
    BatchHeader,
    check_crc,
    iter_batches,
    patch_offset_and_epoch,
    read_header,
    set_append_time,
)
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.control import EndTransactionMarker, build_marker, read_marker
from lakelog.records.record import Record, decode_records

pytestmark = pytest.mark.java

ORACLE = Path(__file__).parent.parent / "java" / "RecordsOracle.java"
LIMIT = 64 << 20
LARGE = b"lakelog " * 20_000

ROWS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (1_000, b"key", b"value", []),
    (999, None, None, [("n", None)]),
    (1 << 40, b"", b"", [("a", b"\x01"), ("schlüssel", b"")]),
    (2_000, None, LARGE, []),
    *[(3_000 + index, b"k%d" % index, LARGE[: index * 7], []) for index in range(200)],
]


def run_oracle(*arguments: str) -> list[str]:
    command = kafka_jars.java_command("formats", ORACLE, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def hexed(value: bytes | None) -> str:
    return "-" if value is None else "x" + value.hex()


def record_text(record: Record) -> str:
    headers = [f"{hexed(name.encode())}={hexed(value)}" for name, value in record.headers]
    fields = [str(record.offset), str(record.timestamp), hexed(record.key), hexed(record.value)]
    return " ".join(fields + headers)


def batch_text(name: str, header: BatchHeader) -> str:
    numbers = (
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.partition_leader_epoch,
        header.size,
        header.crc,
    )
    kind = ("CreateTime", "LogAppendTime")[header.timestamp_type]
    codec = Codec(header.codec).name.lower()
    return " ".join(["batch", name, codec, *map(str, numbers), kind])


def file_text(path: Path) -> list[str]:
    lines = []
    for header, batch in iter_batches(path.read_bytes()):
        assert check_crc(batch, 0, header)
        lines.append(batch_text(path.name, header))
        lines += map(record_text, decode_records(batch, header, LIMIT))
    return lines


def test_java_reads_batches_built_here(tmp_path: Path) -> None:
    files = []
    for codec in Codec:
        builder = BatchBuilder(codec)
        for row in ROWS:
            builder.append(*row)
        first = builder.build(4711, 3, 2**31 - 2, 100, leader_epoch=9)
        second = builder.build(base_offset=100 + len(ROWS), is_transactional=False)
        set_append_time(second, 0, read_header(second), 5_000)
        path = tmp_path / f"built-{codec.name.lower()}"
        path.write_bytes(first + second)
        files.append(path)
    expected = [line for path in files for line in file_text(path)]
    assert len(expected) == 2 * len(Codec) * (len(ROWS) + 1)
    assert run_oracle("read", *map(str, files)) == expected


def test_what_java_builds_is_read_here(tmp_path: Path) -> None:
    run_oracle("write", str(tmp_path))
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["gzip", "lz4", "none", "snappy", "zstd"]
    assert run_oracle("read", *map(str, files)) == [
        line for path in files for line in file_text(path)
    ]


def test_uncompressed_batches_are_byte_identical(tmp_path: Path) -> None:
    run_oracle("write", str(tmp_path))
    theirs = (tmp_path / "none").read_bytes()
    header = read_header(theirs)
    builder = BatchBuilder()
    for record in decode_records(theirs, header, LIMIT):
        builder.append(record.timestamp, record.key, record.value, record.headers)
    assert builder.build(4711, 3, 2**31 - 2, 100, leader_epoch=9) == theirs


def test_markers_are_byte_identical(tmp_path: Path) -> None:
    """Among the epochs is the greatest there is, and a coordinator epoch of -1."""
    file = tmp_path / "markers"
    run_oracle("markers", str(file))
    theirs = list(iter_batches(file.read_bytes()))
    assert len(theirs) == 6
    for index, (header, batch) in enumerate(theirs):
        marker = EndTransactionMarker(index % 2 == 1, index * 1000 - 1)
        producer_id, epoch = 1 << 40 | index // 2, 32765 + index // 2
        ours = build_marker(producer_id, epoch, marker, 1_700_000_000_000 + index)
        patch_offset_and_epoch(ours, 0, 10 + index, index)
        assert ours == batch
        assert read_marker(batch, header) == marker


NOT_UTF_8 = [
    bytes([first, second]) for first in range(0x7F, 0x100) for second in (0x41, 0x80, 0xA0, 0xC3)
] + [
    bytes.fromhex(text)
    for text in (
        *("eda080", "edbfbf", "eda0", "eda041", "eda0eda080", "edeb80", "ed9f", "ed80"),
        *("e08080", "e0a0", "e18041", "efbfbf", "efbf", "c080", "c1bf", "f08080 80", "f0908041"),
        *("f09f98", "f09f9880", "f09f9841", "f4908080", "f48fbfbf", "f7bfbfbf", "f888808080"),
        *("fe", "ff", "80bf", "41ff42", "c3a4ff", "e282", "e28241", "eda0bdedb880"),
    )
]


def test_header_keys_that_are_not_utf_8_are_read_as_by_java(tmp_path: Path) -> None:
    builder = BatchBuilder()
    for index, key in enumerate(NOT_UTF_8):
        builder.append(index, None, None, [("?" * len(key), b"%d" % index)])
    batch = builder.build()
    position = 61
    for index, key in enumerate(NOT_UTF_8):
        position = batch.index(b"?" * len(key), position)
        batch[position : position + len(key)] = key
        position += len(key)
        assert batch[position + 1 :].startswith(b"%d" % index)
    set_append_time(batch, 0, read_header(batch), 5_000)
    file = tmp_path / "keys"
    file.write_bytes(batch)
    assert run_oracle("read", str(file)) == file_text(file)


def test_java_reads_the_batches_of_rows(tmp_path: Path) -> None:
    """Of both encoders, whose bytes are equal; a key has the partition of Java's hash there."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    names = ("timestamp", "key", "value", "headers")
    columns = dict(zip(names, zip(*ROWS, strict=True), strict=True))
    pairs = [[{"key": key, "value": value} for key, value in row] for row in columns["headers"]]
    table = pa.table({**columns, "headers": pa.array(pairs, kind)})
    files, lines = [], []
    for codec in Codec:
        for compiled in (False, True):
            encoder = RowEncoder(1, codec=codec, batch_bytes=100_000, compiled=compiled)
            path = tmp_path / f"{codec.name}-{compiled}"
            offset, parts = 0, []
            for batch in encoder.encode(table.to_batches(), 0):
                parts.append(bytes(batch.build(4711, 3, offset, offset, leader_epoch=9)))
                offset += batch.count
            assert offset == len(ROWS)
            assert len(parts) > 1
            path.write_bytes(b"".join(parts))
            files.append(path)
            lines += file_text(path)
        assert files[-1].read_bytes() == files[-2].read_bytes()
    assert run_oracle("read", *map(str, files)) == lines
