"""Transaction markers; their bytes are compared with Kafka's in `tests/oracle`."""

from __future__ import annotations

import pytest

from lakelog.records.batch import CONTROL, HEADER, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.control import NO_DECISION, EndTransactionMarker, build_marker, read_marker
from lakelog.records.record import decode_records


def control(key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    builder = BatchBuilder()
    builder.append(0, key, value)
    batch = builder.build(7, 1, is_transactional=True, is_control=True)
    return read_marker(batch, read_header(batch))


@pytest.mark.parametrize("decision", [NO_DECISION, 0, 1 << 40])
@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_is_read_as_it_was_built(commit: bool, decision: int) -> None:
    marker = EndTransactionMarker(commit, 12, decision)
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


def test_the_number_of_a_decision_follows_the_fields_of_kafka() -> None:
    """As tagged fields (KIP-482), which a reader of version 0 ignores."""
    batch = build_marker(5, 3, EndTransactionMarker(True, 12, 7), 1_000)
    (record,) = decode_records(batch, read_header(batch), 1 << 10)
    tags = bytes([1, 0x90, 0x4E, 8]) + (7).to_bytes(8, "big")
    assert bytes(record.value or b"") == bytes([0, 0, 0, 0, 0, 12]) + tags


@pytest.mark.parametrize("tail", [b"\0", b"\1\x90\x4e\x08" + bytes(7), b"\1\0\1\1"])
def test_other_tagged_fields_are_not_numbers(tail: bytes) -> None:
    found = control(bytes([0, 0, 0, 1]), bytes([0, 0, 0, 0, 0, 8]) + tail)
    assert found == EndTransactionMarker(True, 8)


@pytest.mark.parametrize(
    ("first", "second", "repeats"),
    [
        ((5, 3), (5, 3), True),
        ((5, 2), (5, 3), True),
        ((5, 4), (5, 3), False),
        ((6, 2), (5, 3), False),
        ((5, NO_DECISION), (5, 3), False),
        ((5, NO_DECISION), (5, NO_DECISION), False),
        ((5, 0), (5, NO_DECISION), False),
    ],
)
def test_numbers_are_compared_within_an_epoch(
    first: tuple[int, int], second: tuple[int, int], repeats: bool
) -> None:
    assert EndTransactionMarker(True, *first).repeats(*second) is repeats


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
