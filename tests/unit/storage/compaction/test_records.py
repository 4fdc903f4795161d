"""Reading the keys of a batch's records, and choosing the records to keep."""

from __future__ import annotations

import pytest

from lakelog.records.errors import CorruptRecord
from lakelog.storage.compaction.records import note_keys, select_records
from poison import record

NO_KEY, EMPTY_KEY = b"\x01", b"\x00"


@pytest.mark.parametrize("key", [b"\x02k", b"\x04k", EMPTY_KEY])
def test_a_record_that_ends_with_its_key_is_rejected(key: bytes) -> None:
    data = record(0, key=key, rest=b"")
    offsets: dict[bytes, int] = {}
    with pytest.raises(CorruptRecord, match="does not fit"):
        note_keys(data, 1, 0, 0, offsets)
    assert offsets == {}
    with pytest.raises(CorruptRecord, match="does not fit"):
        select_records(data, 1, 0, {}, 0, drop_tombstones=False)


def test_an_empty_key_is_a_key() -> None:
    data = record(0, key=EMPTY_KEY) + record(1, key=NO_KEY) + record(2, key=EMPTY_KEY)
    offsets: dict[bytes, int] = {}
    note_keys(data, 3, 0, 0, offsets)
    assert offsets == {b"": 2}
    selection = select_records(data, 3, 0, offsets, 2, drop_tombstones=False)
    assert (selection.records_count, selection.keyless) == (1, 1)
