"""Transaction markers: control batches that end a producer's transaction in a partition.

A control batch is transactional, has no sequence and holds one record. Its layout, big-endian:

    key    0 version i16 (0)   2 type i16 (0 abort, 1 commit)
    value  0 version i16 (0)   2 coordinator epoch i32   6 tagged fields, or nothing

Newer versions only add fields at the end. Control records of other types are not markers. A marker
of a lakelog coordinator has the number of its decision in the tagged field `OWN_TAGS` (KIP-482).
Readers of Kafka's format ignore the bytes behind the coordinator epoch.

Source: KIP-98; `ControlRecordType` and `EndTransactionMarker` of Apache Kafka.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from lakelog.records.batch import BatchHeader, CorruptRecord
from lakelog.records.builder import BatchBuilder
from lakelog.records.record import decode_records
from lakelog.runtime.api import Buffer

ABORT = 0
COMMIT = 1
NO_DECISION = -1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_DECISION = struct.Struct(">q")
_DECISION_HEAD = b"\x01\x90\x4e\x08"
"""One tagged field, its tag (10000 as a varint) and its size."""
_VERSION = 0
_SIZE_MAX = 1 << 20


class EndTransactionMarker(NamedTuple):
    """The outcome of a transaction, and the epoch of the coordinator that wrote the marker."""

    commit: bool
    coordinator_epoch: int
    decision: int = NO_DECISION
    """Number of the coordinator's decision; it rises within a coordinator epoch."""

    def repeats(self, coordinator_epoch: int, decision: int) -> bool:
        """Return whether it is of this decision of a coordinator or an earlier one in its epoch."""
        return (
            self.coordinator_epoch == coordinator_epoch and NO_DECISION < self.decision <= decision
        )


def build_marker(
    producer_id: int, producer_epoch: int, marker: EndTransactionMarker, timestamp: int
) -> bytearray:
    """Return the control batch of a marker (KIP-98).

    `timestamp` is in ms since the Unix epoch.
    """
    assert producer_id >= 0 and producer_epoch >= 0, "only a producer with an id has transactions"
    builder = BatchBuilder()
    kind = COMMIT if marker.commit else ABORT
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    if marker.decision != NO_DECISION:
        value += _DECISION_HEAD + _DECISION.pack(marker.decision)
    builder.append(timestamp, _KEY.pack(_VERSION, kind), value)
    return builder.build(producer_id, producer_epoch, is_transactional=True, is_control=True)


def read_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker in a control batch, or none if there is none.

    Compaction leaves a control batch empty after all records of its transaction are removed.
    Raises `CorruptRecord` for a truncated marker and for a negative version.
    """
    records = decode_records(batch, header, _SIZE_MAX)
    if not records:
        return None
    key, value = records[0].key or b"", records[0].value or b""
    try:
        version, kind = _KEY.unpack_from(key)
        if kind not in (ABORT, COMMIT):
            return None
        value_version, coordinator_epoch = _VALUE.unpack_from(value)
    except struct.error:
        raise CorruptRecord(f"a control record of {len(key)} and {len(value)} bytes") from None
    if version < 0 or value_version < 0:
        raise CorruptRecord(f"versions {version} and {value_version} of a transaction marker")
    return EndTransactionMarker(kind == COMMIT, coordinator_epoch, _decision(value))


def _decision(value: Buffer) -> int:
    tail = bytes(value[_VALUE.size :])
    if not tail.startswith(_DECISION_HEAD) or len(tail) < len(_DECISION_HEAD) + _DECISION.size:
        return NO_DECISION
    number: int = _DECISION.unpack_from(tail, len(_DECISION_HEAD))[0]
    return number
