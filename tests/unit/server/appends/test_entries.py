from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.compression import Codec
from lakelog.server.appends.entries import check_entry, rejected_result
from lakelog.storage.validation import RecordsRefusedError
from memory_broker import MemoryBroker
from storage_kit import make_batch

E = ErrorCode


def code_of(
    world: MemoryBroker,
    batch: bytes | bytearray | None,
    *,
    topic: str = "orders",
    version: int = 12,
) -> ErrorCode:
    try:
        check_entry(world.partition(topic), batch, version, None)
    except KafkaError as error:
        return error.code
    return E.NONE


@pytest.mark.parametrize(
    ("batch", "version", "code"),
    [
        (make_batch(), 3, E.NONE),
        (None, 12, E.INVALID_RECORD),
        (b"short", 12, E.INVALID_RECORD),
        (make_batch(codec=Codec.ZSTD), 6, E.UNSUPPORTED_COMPRESSION_TYPE),
        (make_batch(codec=Codec.ZSTD), 7, E.NONE),
        (
            make_batch(producer=(7, 0, 0), transactional=True),
            12,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_a_batch_fits_its_request(
    world: MemoryBroker, batch: bytes | bytearray | None, version: int, code: ErrorCode
) -> None:
    world.create("orders")
    assert code_of(world, batch, version=version) is code


def test_clients_do_not_write_internal_topics(world: MemoryBroker) -> None:
    world.start_coordinators()
    assert code_of(world, make_batch(), topic="__consumer_offsets") is E.INVALID_TOPIC_EXCEPTION


def test_a_rejected_batch_names_its_bad_records() -> None:
    error = RecordsRefusedError(E.INVALID_RECORD, "no", ((2, "no key"),))
    result = rejected_result(5, error)
    assert (result.index, result.error_code, result.base_offset) == (5, E.INVALID_RECORD, -1)
    assert [
        (each.batch_index, each.batch_index_error_message) for each in result.record_errors
    ] == [(2, "no key")]
    assert rejected_result(5, KafkaError(E.NOT_ENOUGH_REPLICAS)).record_errors == []
