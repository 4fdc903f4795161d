from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.records.compression import Codec
from lakelog.server.appends.acknowledgement import (
    Acknowledgement,
    Appended,
    check_entry,
    committed,
    rejected_result,
)
from lakelog.storage.validation import RecordsRefusedError
from memory_broker import MemoryBroker
from storage_kit import make_batch


@pytest.fixture
def appended(world: MemoryBroker) -> Appended:
    """An append that waits for a flush."""
    world.create("orders", durability="fsync")
    world.append("orders", count=3)
    partition = world.partition("orders")
    return Appended(partition, 3, partition.leader_epoch)


def test_an_append_is_settled_by_the_flush(world: MemoryBroker, appended: Appended) -> None:
    with pytest.raises(KafkaError) as error:
        appended.check()
    assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
    world.run(committed(appended, world.broker.purgatory, world.tasks))
    assert appended.is_complete
    appended.check()


def test_an_append_to_a_deleted_topic_fails(world: MemoryBroker, appended: Appended) -> None:
    world.broker.partitions.remove(appended.partition)
    with pytest.raises(KafkaError) as error:
        world.run(committed(appended, world.broker.purgatory, world.tasks))
    assert error.value.code is not ErrorCode.REQUEST_TIMED_OUT


def test_all_appends_are_waited_for(world: MemoryBroker, appended: Appended) -> None:
    world.create("clicks", durability="fsync")
    partition = world.partition("clicks")
    partition.append(make_batch(), world.clock.wall_ms())
    completed: list[int] = []
    wait = Acknowledgement(
        [appended, Appended(partition, 1, partition.leader_epoch)],
        lambda: completed.append(1),
        lambda _: None,
    )
    assert not wait.try_complete() and not completed
    world.pass_time(1)
    assert wait.try_complete() and completed == [1]


def test_at_the_deadline_the_answer_does_not_wait_any_longer(appended: Appended) -> None:
    completed: list[int] = []
    Acknowledgement([appended], lambda: completed.append(1), lambda _: None).expire()
    assert completed == [1]


def test_a_new_leader_epoch_ends_the_wait(appended: Appended) -> None:
    """Whether the new leader has the records is unknown here."""
    appended.partition.leader_epoch += 1
    assert appended.is_complete
    with pytest.raises(KafkaError):
        appended.check()


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
