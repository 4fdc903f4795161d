"""Producer snapshots, field by field."""

from __future__ import annotations

import struct

from lakelog.storage.producers.snapshot_file import decode_snapshot, encode_snapshot
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
