from __future__ import annotations

import pytest

from lakelog.columns.encoding.batch import EncodedBatch
from lakelog.records.batch import HEADER_SIZE
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec


@pytest.mark.parametrize("codec", list(Codec))
def test_it_equals_the_batch_of_a_builder_and_can_be_numbered_again(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    builder.append(7, b"k", b"v" * 100)
    builder.append(5, None, b"w" * 100)
    plain = BatchBuilder()
    plain.append(7, b"k", b"v" * 100)
    plain.append(5, None, b"w" * 100)
    content = bytearray(HEADER_SIZE) + plain.build()[HEADER_SIZE:]

    batch = EncodedBatch(content, codec, 3, 2, 7, 7)

    assert bytes(batch.build()) == bytes(builder.build())
    numbers = (9, 1, 40, 77)
    assert bytes(batch.build(*numbers, leader_epoch=2, is_transactional=True)) == bytes(
        builder.build(*numbers, leader_epoch=2, is_transactional=True)
    )
    assert batch.size_estimate == len(builder.build())
