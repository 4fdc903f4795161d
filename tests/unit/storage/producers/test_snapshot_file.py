"""Producer snapshots, field by field."""

from __future__ import annotations

import struct

import pytest

from lakelog.records import crc
from lakelog.records.control import NO_DECISION
from lakelog.storage.producers.snapshot_file import (
    MalformedSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from lakelog.storage.producers.state import ProducerEntry

_HEAD_SIZE = 2 + 4 + 4
_ROW = struct.Struct(">qhiqiqiq")


def test_a_producer_without_batches_has_the_values_that_kafka_writes() -> None:
    """`ProducerStateEntry` returns -1, -1 and 0 for the last batch that it does not have."""
    entry = ProducerEntry(epoch=4)
    entry.last_timestamp = 17
    data = encode_snapshot({9: entry})
    assert _ROW.unpack_from(data, _HEAD_SIZE) == (
        *(9, 4, -1, -1, 0, 17, entry.coordinator_epoch, entry.txn_first_offset),
    )
    assert not decode_snapshot(data)[9].batches


def test_numbers_of_decisions_follow_the_rows_that_kafka_reads() -> None:
    numbered, plain = ProducerEntry(epoch=4), ProducerEntry(epoch=1)
    numbered.coordinator_epoch, numbered.decision = 5, 1 << 40
    data = encode_snapshot({9: numbered, 10: plain})
    assert data[_HEAD_SIZE + 2 * _ROW.size :] == struct.pack(">qq", 9, 1 << 40)
    found = decode_snapshot(data)
    assert (found[9].decision, found[10].decision) == (1 << 40, NO_DECISION)


@pytest.mark.parametrize("tail", [b"\0", struct.pack(">qq", 10, 0)], ids=["torn", "unknown"])
def test_a_number_that_cannot_be_spoils_the_snapshot(tail: bytes) -> None:
    body = encode_snapshot({9: ProducerEntry(epoch=4)})[6:] + tail
    with pytest.raises(MalformedSnapshot):
        decode_snapshot(struct.pack(">hI", 1, crc.crc32c(body)) + body)
