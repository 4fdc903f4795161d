"""Transaction markers; their bytes are compared with Kafka's in `tests/oracle`."""

from __future__ import annotations

import pytest

from lakelog.records.batch import CONTROL, HEADER, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.control import EndTransactionMarker, build_marker, read_marker


def control(key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    builder = BatchBuilder()
    builder.append(0, key, value)
    batch = builder.build(7, 1, is_transactional=True, is_control=True)
    return read_marker(batch, read_header(batch))


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_is_read_as_it_was_built(commit: bool) -> None:
    marker = EndTransactionMarker(commit, 12)
    batch = build_marker(5, 3, marker, 1_000)
    header = read_header(batch)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert (header.records_count, header.max_timestamp) == (1, 1_000)
    assert read_marker(batch, header) == marker


def test_other_control_records_are_no_markers() -> None:
    assert control(bytes([0, 0, 0, 2]), b"leader change") is None


def test_a_batch_that_compaction_has_emptied_holds_no_marker() -> None:
    size = HEADER.size - 12
    header = HEADER.pack(9, size, 0, 2, 0, CONTROL, 0, -1, -1, 5, 1, -1, 0)
    assert read_marker(header, read_header(header)) is None


def test_fields_of_a_newer_version_are_ignored() -> None:
    found = control(bytes([0, 1, 0, 1, 99]), bytes([0, 1, 0, 0, 0, 8, 99]))
    assert found == EndTransactionMarker(True, 8)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0\0\0", bytes(6)),
        (bytes(4), None),
        (bytes(4), bytes(5)),
        (b"\xff\xff\0\0", bytes(6)),
        (bytes(4), b"\xff\xff" + bytes(4)),
    ],
)
def test_a_marker_that_cannot_be_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        control(key, value)
