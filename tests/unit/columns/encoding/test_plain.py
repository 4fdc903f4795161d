from __future__ import annotations

import pyarrow as pa

from lakelog.columns.encoding.plain import encode_plainly
from lakelog.columns.encoding.rows import Limits, checked_rows
from lakelog.records.compression import Codec


def test_a_full_batch_moves_rows_without_a_key_on() -> None:
    """Also if a row with a partition has filled it."""
    table = pa.table(
        {"value": [b"x" * 100] * 4, "partition": pa.array([None, 0, None, None], pa.int32())}
    )
    [rows] = checked_rows(table.to_batches(), Limits(2, 1000), 0)
    batches, sticky = encode_plainly(rows, 2, 0, 200, Codec.NONE)
    assert [(batch.partition, batch.count) for batch in batches] == [(0, 1), (0, 1), (1, 1), (1, 1)]
    assert sticky == 0
