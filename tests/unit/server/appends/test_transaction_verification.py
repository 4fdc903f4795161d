from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.server.appends.transaction_verification import ProduceCheck, rejection
from lakelog.storage.producers.beginnings import Verification, VerificationVoidedError
from memory_broker import MemoryBroker
from memory_clients import add_partition, init_producer
from storage_kit import NOW, make_batch

E = ErrorCode


def request(*producers: tuple[int, int]) -> ProduceRequest:
    """Write one batch to each partition, from 0 on."""
    entries = [
        PartitionProduceData(
            index=index, records=make_batch(producer=(*producer, 0), transactional=True)
        )
        for index, producer in enumerate(producers)
    ]
    topics = [TopicProduceData(name="orders", partition_data=entries)]
    return ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=topics)


def check(world: MemoryBroker, asked: ProduceRequest, version: int = 11) -> ProduceCheck:
    return ProduceCheck(world.broker.partitions, asked, version, world.clock.wall_ms())


def test_each_partition_has_the_coordinator_s_verdict(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    add_partition(coordinators, producer, 0)
    found = check(coordinators, request(producer, producer))
    assert bool(found.asked)

    async def ask() -> None:
        found.codes = await found.ask(coordinators.broker.transactions)

    coordinators.run(ask())
    assert found.verification("orders", 0) is not None
    with pytest.raises(KafkaError) as error:
        found.verification("orders", 1)
    assert error.value.code is E.TRANSACTION_ABORTABLE


def test_a_voided_verification_is_repeated_for_the_present_transaction(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    for index in (0, 1):
        add_partition(coordinators, producer, index)
    asked = request(producer, producer)
    entries = asked.topic_data[0].partition_data
    found, now_ms = check(coordinators, asked), coordinators.clock.wall_ms()
    coordinator = coordinators.broker.transactions
    partition = coordinators.broker.partitions.leader("orders", 0)

    async def repeat() -> Verification | None:
        found.codes = await found.ask(coordinator)
        first = found.verification("orders", 0)
        partition.append_marker(*producer, True, 0, now_ms, transaction_version=1)
        with pytest.raises(VerificationVoidedError):
            partition.append(bytearray(entries[0].records or b""), now_ms, verification=first)
        again = await found.repeat(coordinator, "orders", entries[0], now_ms)
        assert again is not first
        return again

    again = coordinators.run(repeat())
    partition.append(bytearray(entries[0].records or b""), now_ms, verification=again)
    assert found.verification("orders", 1) is not None


def test_a_batch_whose_transaction_has_begun_is_not_verified_again(
    coordinators: MemoryBroker,
) -> None:
    """A repetition on another connection was appended."""
    producer = init_producer(coordinators)
    add_partition(coordinators, producer, 0)
    asked = request(producer)
    entry = asked.topic_data[0].partition_data[0]
    found, now_ms = check(coordinators, asked), coordinators.clock.wall_ms()
    coordinator = coordinators.broker.transactions
    partition = coordinators.broker.partitions.leader("orders", 0)

    async def repeat() -> Verification | None:
        found.codes = await found.ask(coordinator)
        verification = found.verification("orders", 0)
        records = bytearray(entry.records or b"")
        partition.append(records, now_ms, verification=verification)
        return await found.repeat(coordinator, "orders", entry, now_ms)

    assert coordinators.run(repeat()) is None


def test_a_partition_that_does_not_exist_is_not_asked_for(coordinators: MemoryBroker) -> None:
    found = check(coordinators, request((7, 0), (7, 0), (7, 0)))
    with pytest.raises(KafkaError) as error:
        found.verification("orders", 2)
    assert error.value.code is E.UNKNOWN_TOPIC_OR_PARTITION


def test_one_request_has_one_producer(coordinators: MemoryBroker) -> None:
    with pytest.raises(KafkaError) as error:
        check(coordinators, request((7, 0), (8, 0)))
    assert error.value.code is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (E.NOT_COORDINATOR, 13, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_NOT_AVAILABLE, 13, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 8, E.NOT_ENOUGH_REPLICAS),
        (E.NETWORK_EXCEPTION, 12, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, 11, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, 12, E.CONCURRENT_TRANSACTIONS),
        (E.PRODUCER_FENCED, 12, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, 10, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, 11, E.TRANSACTION_ABORTABLE),
        (E.INVALID_PRODUCER_ID_MAPPING, 12, E.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_each_version_gets_an_error_that_it_knows(
    code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    assert rejection(code, version).code is expected


def test_records_are_copied_only_while_the_coordinator_is_asked(coordinators: MemoryBroker) -> None:
    asked = request((7, 0))
    entry = asked.topic_data[0].partition_data[0]
    received = entry.records = memoryview(entry.records or b"")
    partitions, now_ms = coordinators.broker.partitions, coordinators.clock.wall_ms()
    assert not ProduceCheck(partitions, asked, 11, now_ms, asks=False).asked
    assert entry.records is received
    check(coordinators, asked)
    assert entry.records is not received
    assert bytes(entry.records) == bytes(received)


def test_a_verification_is_of_the_partition_that_it_began_with(coordinators: MemoryBroker) -> None:
    producer = init_producer(coordinators)
    asked = request(producer)
    found, entry = check(coordinators, asked), asked.topic_data[0].partition_data[0]
    partition, verification = found.target("orders", entry)
    assert verification is not None
    coordinators.broker.partitions.remove(partition)
    assert found.target("orders", entry) == (partition, verification)
    with pytest.raises(KafkaError) as error:
        partition.append(make_batch(producer=(*producer, 0), transactional=True), 0)
    assert error.value.code is E.UNKNOWN_TOPIC_OR_PARTITION


def test_batches_behind_an_unverified_batch_wait_for_it(
    coordinators: MemoryBroker,
) -> None:
    producer = init_producer(coordinators)
    partition = coordinators.broker.partitions.leader("orders", 0)
    partition.append_marker(*producer, True, 0, 0, transaction_version=2)

    def code(sequence: int, verdict: ErrorCode = E.NONE) -> ErrorCode:
        asked = request(producer)
        entry = asked.topic_data[0].partition_data[0]
        entry.records = make_batch(producer=(*producer, sequence), transactional=True)
        found = check(coordinators, asked, 12)
        found.codes = {("orders", 0): verdict}
        try:
            target, verification = found.target("orders", entry)
            target.append(entry.records, NOW, verification=verification)
        except KafkaError as rejected:
            return rejected.code
        return E.NONE

    assert code(0, E.NOT_COORDINATOR) is E.NOT_ENOUGH_REPLICAS
    assert code(1) is E.NOT_ENOUGH_REPLICAS
    assert [code(0), code(1)] == [E.NONE, E.NONE]
    assert code(3) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
