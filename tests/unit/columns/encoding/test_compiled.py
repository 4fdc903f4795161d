from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakelog.columns.encoding.compiled import CompiledEncoder
from lakelog.columns.encoding.rows import Limits, checked_rows
from lakelog.records.compression import Codec

pytestmark = [pytest.mark.xdist_group("compiler")]


def test_tables_of_all_shapes_are_compiled_with_and_without_headers_only() -> None:
    encoders = {kind: CompiledEncoder(with_headers=kind) for kind in (True, False)}
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    changeable = np.frombuffer(bytearray(b"abc"), np.uint8)
    ends = pa.py_buffer(np.array([0, 1, 3], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(changeable)])
    everything = {
        "value": value,
        "key": pa.array(["a", None]),
        "headers": pa.array([None, [{"key": "h", "value": None}]], headers),
        "timestamp": pa.array([None, 5]),
        "partition": pa.array([None, 1]),
    }
    for names in (list(everything), ["value"], ["value", "key"], ["value", "timestamp"]):
        for count in (1, 2):
            table = pa.table({name: everything[name] for name in names}).slice(0, count)
            [rows] = checked_rows(table.to_batches(), Limits(2, 1000), 0)
            encoders["headers" in names].encode(rows, 2, 0, 1000, Codec.NONE)
    for encoder in encoders.values():
        assert len(encoder._plan.signatures) == len(encoder._write.signatures) == 1
