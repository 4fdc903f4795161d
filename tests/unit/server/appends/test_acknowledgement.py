from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lakelog.records.compression import Codec
from lakelog.server.appends.acknowledgement import (
    Acknowledgement,
    Appended,
    check_entry,
    committed,
    rejected_result,
)
from lakelog.server.handlers.fetch import fetch
from lakelog.server.handlers.topics import delete_records
from lakelog.server.replication.leader_session import LeaderSession
from lakelog.storage.validation import RecordsRefusedError
from memory_broker import Asked, MemoryBroker
from replica_pair import EPOCH, FETCH, FOLLOWER, LEADER, ReplicaPair
from storage_kit import NOW, make_batch


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


class Deleting(ReplicaPair):
    """Two replicas with two committed records, of which the first is deleted."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self._session = LeaderSession(FOLLOWER)
        self._session.add(self.follower)
        self.produce(acks=1)
        for _ in range(3):
            self.fetch()
        assert self.follower.watermark.offset == 2

    def fetch(self) -> None:
        request = self._session.request(EPOCH, 0.0)
        assert request is not None
        response = self.broker.ask(fetch, request, FETCH, sender=FOLLOWER)
        for partition, position, data in self._session.on_response(response):
            assert not data.error_code
            records = memoryview(data.records or b"")
            offsets = data.high_watermark, data.log_start_offset
            partition.append_fetched(records, position.leader_epoch, *offsets, NOW)

    def delete(self, timeout_ms: int = 30_000) -> Asked[DeleteRecordsResponse]:
        asked = self.ask(1, timeout_ms)
        assert self.leader.log.log_start_offset == 1
        return asked

    def ask(self, offset: int, timeout_ms: int = 30_000) -> Asked[DeleteRecordsResponse]:
        entry = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name="t", partitions=[entry])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        asked: Asked[DeleteRecordsResponse] = self.broker.start(delete_records, request, 2)
        self.broker.pass_time(0.1)
        return asked

    def elect_again(self) -> int:
        """Begin a leader epoch with records that may be committed; return the end of the log."""
        self.produce(acks=1)
        self.change((LEADER, FOLLOWER), epoch_rises=True)
        self.follower.assume(self.role_in(), 0)
        self._session = LeaderSession(FOLLOWER)
        self._session.add(self.follower)
        end = self.leader.log.log_end_offset
        assert self.leader.watermark.offset < end
        return end


def result_of(asked: Asked[DeleteRecordsResponse]) -> DeleteRecordsPartitionResult:
    return asked.response().topics[0].partitions[0]


@pytest.fixture
def deleting() -> Iterator[Deleting]:
    with MemoryBroker() as broker:
        yield Deleting(broker)


def test_the_response_waits_until_the_follower_has_deleted_the_records(deleting: Deleting) -> None:
    asked = deleting.delete()
    waits = [asked.is_answered]
    deleting.fetch()
    assert deleting.follower.log.log_start_offset == 1
    waits.append(asked.is_answered)
    deleting.fetch()
    deleting.broker.pass_time(0.1)
    assert [*waits, asked.is_answered] == [False, False, True]
    assert (result_of(asked).error_code, result_of(asked).low_watermark) == (0, 1)


def test_a_follower_that_does_not_fetch_has_the_request_time_out(deleting: Deleting) -> None:
    asked = deleting.delete(timeout_ms=5000)
    deleting.broker.pass_time(4.0)
    assert not asked.is_answered
    deleting.broker.pass_time(1.1)
    result = result_of(asked)
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_a_fenced_follower_is_not_waited_for(deleting: Deleting) -> None:
    asked = deleting.delete()
    deleting.fence()
    deleting.broker.pass_time(1.1)
    assert result_of(asked).low_watermark == 1


def test_the_wait_ends_with_the_leader_epoch(deleting: Deleting) -> None:
    asked = deleting.delete()
    deleting.change((LEADER, FOLLOWER), epoch_rises=True)
    deleting.broker.pass_time(0.1)
    assert result_of(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("to_the_watermark", [False, True])
def test_a_new_leader_first_learns_of_committed_records(
    deleting: Deleting, to_the_watermark: bool
) -> None:
    end = deleting.elect_again()
    asked = deleting.ask(-1 if to_the_watermark else end)
    assert not asked.is_answered
    for _ in range(4):
        deleting.fetch()
        deleting.broker.pass_time(0.1)
    assert (result_of(asked).error_code, result_of(asked).low_watermark) == (0, end)


def test_an_offset_beyond_the_log_is_out_of_range_for_a_new_leader(deleting: Deleting) -> None:
    end = deleting.elect_again()
    asked = deleting.ask(end + 1)
    for _ in range(2):
        deleting.fetch()
        deleting.broker.pass_time(0.1)
    assert result_of(asked).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_new_leader_whose_follower_does_not_fetch_deletes_nothing(deleting: Deleting) -> None:
    asked = deleting.ask(deleting.elect_again(), timeout_ms=5000)
    deleting.broker.pass_time(5.0)
    assert result_of(asked).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert deleting.leader.log.log_start_offset == 0
