from __future__ import annotations

import pytest

from lakelog.columns.decoding.compiled import CompiledDecoder
from lakelog.columns.decoding.groups import Group
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import record_view

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process, which keeps the compiled loop."""


def test_batches_of_all_codecs_and_columns_need_one_compilation() -> None:
    decoder = CompiledDecoder(with_headers=True)
    for codec in Codec:
        builder = BatchBuilder(codec)
        builder.append(7, b"key", None, [("h", b"x")])
        batch = builder.build()
        header = read_header(batch)
        for columns in (["offset"], ["offset", "key", "headers"]):
            group = Group()
            group.add(header, record_view(batch, header, 1 << 20))
            assert decoder.decode(group, columns, 0, 9)["offset"].to_pylist() == [0]
    assert [len(loop.signatures) for loop in decoder._loops] == [1, 1, 1]


def test_without_headers_only_one_loop_is_compiled() -> None:
    decoder = CompiledDecoder(with_headers=False)
    assert len(decoder._loops) == 1
    batch = BatchBuilder()
    batch.append(7, b"key", b"value", [("h", b"x")])
    built = batch.build()
    group = Group()
    group.add(read_header(built), record_view(built, read_header(built), 1 << 20))
    assert decoder.decode(group, ["value"], 0, 9)["value"].to_pylist() == [b"value"]
