"""Transactional Produce requests: verification, waiting batches, and error codes."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lakelog.server.appends.transaction_verification import TopicPartition
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.connections.sampling import Sampling
from lakelog.server.handlers import produce
from memory_broker import MemoryBroker
from storage_kit import (
    NOW,
    TOPIC_ID,
    ManualClock,
    make_batch,
    partitions_in_memory,
    read_records,
)

E = ErrorCode


class Meanwhile:
    """Lets the test go on until it resumes the coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


class FakeCoordinator:
    """Returns the codes that the test sets, a little later."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), add))
        await Meanwhile()
        return {partition: self.codes.get(partition, E.NONE) for partition in partitions}


class ProduceSetup:
    def __init__(self, partitions: int = 2) -> None:
        clock = ManualClock()
        self.partitions = partitions_in_memory(clock, partitions)
        self.coordinator = FakeCoordinator()
        self.checked: list[object] = []
        self.held_bytes = 0
        self.broker: Any = SimpleNamespace(
            clock=clock,
            partitions=self.partitions,
            purgatory=SimpleNamespace(check_soon=self.checked.append),
            requests=SimpleNamespace(errors=Counter()),
            verification=self.coordinator,
            endpoints_of=lambda connection, leaders: [],
            config={"transaction.partition.verification.enable": True},
            slow_batches=self,
        )

    @contextmanager
    def held(self, size: int, _: object) -> Iterator[None]:
        """As `SlowBatches.held`."""
        self.held_bytes += size
        yield
        self.held_bytes -= size

    def start(self, request: ProduceRequest, version: int = 12) -> tuple[Any, Any]:
        """The context, and the result of the handler."""
        connection = SimpleNamespace(sampling=Sampling())
        context: Any = SimpleNamespace(version=version, pipelined=True, connection=connection)
        return context, produce.handle(self.broker, context, request)

    def codes(self, request: ProduceRequest, version: int = 12) -> list[ErrorCode]:
        """Of all partitions, with the coordinator answering at once."""
        _, response = self.start(request, version)
        if isinstance(response, Coroutine):
            response.send(None)
            response = finished(response)
        return [E(entry.error_code) for t in response.responses for entry in t.partition_responses]

    def log(self, index: int = 0) -> Any:
        return self.partitions.leader("t", index).log


def request(
    *batches: bytes | bytearray | memoryview | None, transactional_id: str | None = "id"
) -> ProduceRequest:
    """The first batch is for partition 0, and so on."""
    entries = [PartitionProduceData(index=i, records=b) for i, b in enumerate(batches)]
    topic = TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=entries)
    return ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic]
    )


def batch(sequence: int = 0, *, epoch: int = 0, producer_id: int = 7) -> bytearray:
    return make_batch(producer=(producer_id, epoch, sequence), transactional=True)


def test_the_first_batch_of_a_transaction_asks_and_the_next_do_not() -> None:
    setup = ProduceSetup()
    assert setup.codes(request(batch(), batch())) == [E.NONE, E.NONE]
    assert setup.coordinator.asked == [("id", 7, 0, [("t", 0), ("t", 1)], True)]
    context, response = setup.start(request(batch(1)))
    assert response.responses[0].partition_responses[0].error_code == 0
    assert context.pipelined
    assert len(setup.coordinator.asked) == 1
    assert setup.log().last_stable_offset == 0


@pytest.mark.parametrize(("version", "add"), [(9, False), (11, False), (12, True), (13, True)])
def test_from_version_12_on_the_partition_is_added(version: int, add: bool) -> None:
    setup = ProduceSetup()
    assert setup.codes(request(batch()), version) == [E.NONE]
    assert setup.coordinator.asked[0][-1] is add


def test_later_requests_of_the_connection_wait_and_the_batch_is_kept() -> None:
    """The receive buffer is used again while the coordinator is asked."""
    setup = ProduceSetup()
    received = batch()
    context, response = setup.start(request(memoryview(received)))
    assert not context.pipelined
    response.send(None)
    received[:] = b"\xff" * len(received)
    assert setup.held_bytes == len(received)
    assert setup.log().log_end_offset == 0
    answer = finished(response)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert len(read_records(setup.log())) == 1
    assert len(setup.checked) == 1
    assert setup.held_bytes == 0


def test_a_marker_that_comes_meanwhile_voids_the_answer() -> None:
    setup = ProduceSetup()
    _, response = setup.start(request(batch()))
    response.send(None)
    setup.partitions.leader("t", 0).append_marker(7, 0, False, 0, NOW, transaction_version=0)
    answer = finished(response)
    assert answer.responses[0].partition_responses[0].error_code == E.INVALID_TXN_STATE
    assert setup.log().last_stable_offset == setup.log().log_end_offset == 1


def test_each_partition_has_its_own_verdict() -> None:
    setup = ProduceSetup(3)
    setup.coordinator.codes["t", 1] = E.TRANSACTION_ABORTABLE
    plain = make_batch(producer=(7, 0, 0))
    codes = setup.codes(request(batch(), batch(), plain))
    assert codes == [E.NONE, E.TRANSACTION_ABORTABLE, E.NONE]
    assert [setup.log(index).log_end_offset for index in range(3)] == [1, 0, 1]


def test_what_cannot_begin_is_not_asked_for() -> None:
    setup = ProduceSetup(2)
    setup.partitions.leader("t", 0).append_marker(7, 5, True, 0, NOW, transaction_version=0)
    codes = setup.codes(request(batch(epoch=4), batch(epoch=4), batch(epoch=4)))
    assert codes == [E.INVALID_PRODUCER_EPOCH, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert setup.coordinator.asked[0][3] == [("t", 1)]


def test_partitions_are_found_by_id_from_version_13_on() -> None:
    setup = ProduceSetup()
    assert setup.codes(request(batch()), 13) == [E.NONE]
    assert setup.coordinator.asked[0][3] == [("t", 0)]


def test_one_request_has_one_producer() -> None:
    setup = ProduceSetup()
    codes = setup.codes(request(batch(), batch(producer_id=8)))
    assert codes == [E.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not setup.coordinator.asked


def test_a_batch_without_its_transactional_id_is_refused() -> None:
    """KIP-890, CVE-2018-1288: it has no producer to verify, even in a transaction."""
    setup = ProduceSetup()
    assert setup.codes(request(batch())) == [E.NONE]
    for sequence in (0, 1):
        codes = setup.codes(request(batch(sequence), transactional_id=None))
        assert codes == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert setup.log().log_end_offset == 1


def test_a_partition_never_added_is_refused_and_nothing_is_unstable() -> None:
    """KIP-890 part 1."""
    setup = ProduceSetup()
    setup.coordinator.codes["t", 0] = E.INVALID_TXN_STATE
    assert setup.codes(request(batch()), 11) == [E.INVALID_TXN_STATE]
    assert setup.log().last_stable_offset == setup.log().log_end_offset == 0


def test_a_request_that_holds_no_batch_is_answered() -> None:
    setup = ProduceSetup()
    assert setup.codes(request(None, b"short")) == [E.INVALID_RECORD] * 2
    assert not setup.coordinator.asked


# Requests without a transaction, against a broker in memory.


def written(
    world: MemoryBroker, asked: ProduceRequest, version: int = 12
) -> list[PartitionProduceResponse]:
    response: ProduceResponse = world.ask(produce.handle, asked, version)
    return [each for topic in response.responses for each in topic.partition_responses]


def plain(
    *batches: bytes | bytearray | None, acks: int = 1, topic: str = "t", timeout_ms: int = 1000
) -> ProduceRequest:
    entries = [PartitionProduceData(index=i, records=b) for i, b in enumerate(batches)]
    topics = [TopicProduceData(name=topic, partition_data=entries)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def test_each_partition_has_its_offset_or_its_error(world: MemoryBroker) -> None:
    world.create("t", 2)
    world.append("t", count=3)
    found = written(world, plain(make_batch(2), None, make_batch()))
    assert [(each.index, each.error_code, each.base_offset) for each in found] == [
        (0, E.NONE, 3),
        (1, E.INVALID_RECORD, -1),
        (2, E.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert world.broker.requests.errors["Produce", E.INVALID_RECORD] == 1


@pytest.mark.parametrize("acks", [2, -2])
def test_unknown_acks_write_nothing(world: MemoryBroker, acks: int) -> None:
    world.create("t")
    (found,) = written(world, plain(make_batch(), acks=acks))
    assert found.error_code == E.INVALID_REQUIRED_ACKS
    assert world.partition("t").log.log_end_offset == 0


def test_a_damaged_batch_is_not_written(world: MemoryBroker) -> None:
    world.create("t")
    damaged = make_batch()
    damaged[-1] ^= 1
    (found,) = written(world, plain(damaged))
    assert found.error_code == E.CORRUPT_MESSAGE
    (repeated,) = written(world, plain(make_batch()))
    assert repeated.error_code == E.NONE


def test_an_idempotent_batch_that_is_repeated_has_its_first_offset(world: MemoryBroker) -> None:
    world.create("t")
    asked = plain(make_batch(3, producer=(7, 0, 0)))
    assert [written(world, asked)[0].base_offset for _ in range(2)] == [0, 0]
    gap = plain(make_batch(producer=(7, 0, 9)))
    assert written(world, gap)[0].error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_with_acks_0_an_error_closes_the_connection(world: MemoryBroker) -> None:
    world.create("t")
    assert world.start(produce.handle, plain(make_batch(), acks=0), 12).context.parts == []
    with pytest.raises(ProtocolViolation, match="UNKNOWN_TOPIC_OR_PARTITION"):
        world.start(produce.handle, plain(make_batch(), acks=0, topic="gone"), 12)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_durable_topic_answers_after_the_flush(world: MemoryBroker, acks: int) -> None:
    world.create("t", durability="fsync")
    asked = world.start(produce.handle, plain(make_batch(), acks=acks), 12)
    assert not asked.is_answered
    (topic,) = asked.response().responses
    assert topic.partition_responses[0].error_code == E.NONE
    assert world.partition("t").watermark.offset == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.EIO, E.KAFKA_STORAGE_ERROR), (errno.ENOSPC, E.KAFKA_STORAGE_ERROR)],
)
def test_a_batch_that_was_not_written_is_an_error(
    world: MemoryBroker, code: int, expected: ErrorCode
) -> None:
    world.create("t")
    world.disk.fail("write", code, suffix=".log")
    assert written(world, plain(make_batch()))[0].error_code == expected


def test_not_enough_replicas_keep_acks_all_from_writing(world: MemoryBroker) -> None:
    world.create("t", min_insync_replicas="2")
    assert written(world, plain(make_batch(), acks=-1))[0].error_code == E.NOT_ENOUGH_REPLICAS
    assert written(world, plain(make_batch(), acks=1))[0].error_code == E.NONE
