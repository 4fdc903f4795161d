"""Rules of a topic: the floor of an archived one, and the codec of its batches."""

from __future__ import annotations

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.batch import read_header
from lakelog.records.compression import Codec
from lakelog.records.record import decode_records
from lakelog.replica.topic_rules import archive_floor, recompressed, recompressed_slowly
from lakelog.storage.validation import DECODED_AT_ONCE, SlowBatchError
from storage_kit import make_batch


@pytest.mark.parametrize(
    ("overrides", "floor"),
    [
        ({}, None),
        ({"table.archived.offsets": "0:7"}, None),
        ({"table.enable": "true"}, 0),
        ({"table.enable": "true", "table.archived.offsets": "0:7,1:9"}, 9),
        ({"table.enable": "true", "table.archived.offsets": "0:7"}, 0),
    ],
)
def test_a_partition_without_archived_offsets_keeps_everything(
    overrides: dict[str, str], floor: int | None
) -> None:
    assert archive_floor(LogConfig.from_values(overrides), 1) == floor


GZIP = LogConfig(compression_type="gzip")


def test_a_batch_in_the_codec_of_the_topic_is_not_copied() -> None:
    batch = make_batch(3, codec=Codec.GZIP)
    assert recompressed(batch, GZIP) is batch
    assert recompressed_slowly(batch, read_header(batch), GZIP) is batch


def test_the_records_are_the_same_in_another_codec() -> None:
    batch = make_batch(20, codec=Codec.ZSTD)
    header = read_header(batch)
    for stored in (recompressed(batch, GZIP), recompressed_slowly(batch, header, GZIP)):
        found = read_header(stored)
        assert found.codec == Codec.GZIP
        assert decode_records(stored, found, 1 << 20) == decode_records(batch, header, 1 << 20)


def test_a_batch_of_many_bytes_is_left_to_a_thread() -> None:
    batch = make_batch(1, size=DECODED_AT_ONCE + 1, codec=Codec.ZSTD)
    with pytest.raises(SlowBatchError):
        recompressed(batch, GZIP)
    stored = recompressed_slowly(batch, read_header(batch), GZIP)
    assert read_header(stored).codec == Codec.GZIP


def test_a_thread_respects_the_limit_of_the_topic() -> None:
    config = LogConfig(compression_type="gzip", max_decompressed_message_bytes=1_000)
    batch = make_batch(1, size=2_000, codec=Codec.ZSTD)
    with pytest.raises(KafkaError) as error:
        recompressed_slowly(batch, read_header(batch), config)
    assert error.value.code is ErrorCode.INVALID_RECORD


def test_a_topic_that_returned_to_the_codec_of_producers_keeps_the_batch() -> None:
    """The setting may change while a thread waits for its turn."""
    batch = make_batch(3, codec=Codec.LZ4)
    assert recompressed_slowly(batch, read_header(batch), LogConfig()) is batch


def test_a_damaged_batch_does_not_get_a_new_checksum() -> None:
    batch = make_batch(3)
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        recompressed(batch, GZIP)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE
