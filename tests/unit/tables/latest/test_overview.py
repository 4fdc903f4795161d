from __future__ import annotations

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.latest.overview import latest_overview
from unit.tables.latest.kit import BUCKETS, Put, Tables


def test_the_lag_is_in_archived_offsets(address: TableAddress) -> None:
    tables = Tables(address)
    tables.append(Put(b"a", b"1"), Put(b"b", b"2"), Put(None, b"x"))
    tables.refresh()
    tables.append(Put(b"a", b"3"), Put(b"a", b"4", 1))
    found = latest_overview(tables.version(), tables.place.address.load())
    assert (found.rows, found.lag, found.null_keys, found.buckets) == (2, 2, 1, BUCKETS)
    assert found.files == len(tables.files())
    assert found.size > 1000
