"""Transactional Produce requests: verification, waiting batches, and error codes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
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
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.appends.slow_batches import SlowBatches
from lakelog.server.appends.transaction_verification import TopicPartition
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.handlers.produce import produce
from lakelog.server.requests.context import Context
from lakelog.storage.log import Log
from lakelog.storage.validation import WALKED_AT_ONCE, WalkedBatch
from memory_broker import Asked, MemoryBroker
from storage_kit import NOW, make_batch, read_records

E = ErrorCode


class ScriptedCoordinator:
    """Answers with the codes that the test sets, while `answers` is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.answers = asyncio.Event()
        self.answers.set()

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
        await self.answers.wait()
        return {partition: self.codes.get(partition, E.NONE) for partition in partitions}


class Verified:
    """A broker with the topic `t`, whose transaction coordinator is scripted."""

    def __init__(self, world: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.topic_id = world.create("t", 3)
        self.coordinator = ScriptedCoordinator()
        monkeypatch.setattr(world.broker, "verification", self.coordinator)

    def start(self, request: ProduceRequest, version: int = 12) -> Asked[ProduceResponse]:
        for topic in request.topic_data:
            topic.topic_id = self.topic_id
        return self.world.start(produce, request, version)

    def codes(self, request: ProduceRequest, version: int = 12) -> list[ErrorCode]:
        """Return the error codes of all partitions."""
        return codes_of(self.start(request, version))

    def log(self, index: int = 0) -> Log:
        return self.world.partition("t", index).log


def codes_of(asked: Asked[ProduceResponse]) -> list[ErrorCode]:
    responses = asked.response().responses
    return [E(entry.error_code) for topic in responses for entry in topic.partition_responses]


@pytest.fixture
def setup(world: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> Verified:
    return Verified(world, monkeypatch)


def request(
    *batches: bytes | bytearray | memoryview | None, transactional_id: str | None = "id"
) -> ProduceRequest:
    """The first batch is for partition 0, and so on."""
    entries = [PartitionProduceData(index=i, records=b) for i, b in enumerate(batches)]
    topic = TopicProduceData(name="t", partition_data=entries)
    return ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic]
    )


def batch(sequence: int = 0, *, epoch: int = 0, producer_id: int = 7) -> bytearray:
    return make_batch(producer=(producer_id, epoch, sequence), transactional=True)


def test_the_first_batch_of_a_transaction_asks_and_the_next_do_not(setup: Verified) -> None:
    assert setup.codes(request(batch(), batch())) == [E.NONE, E.NONE]
    assert setup.coordinator.asked == [("id", 7, 0, [("t", 0), ("t", 1)], True)]
    second = setup.start(request(batch(1)))
    assert codes_of(second) == [E.NONE]
    assert second.context.pipelined
    assert len(setup.coordinator.asked) == 1
    assert setup.log().last_stable_offset == 0


@pytest.mark.parametrize(("version", "add"), [(9, False), (11, False), (12, True), (13, True)])
def test_version_12_adds_the_partition(setup: Verified, version: int, add: bool) -> None:
    assert setup.codes(request(batch()), version) == [E.NONE]
    assert setup.coordinator.asked[0][-1] is add


def test_later_requests_of_the_connection_wait_and_the_batch_is_kept(setup: Verified) -> None:
    """The receive buffer is used again while the coordinator is asked."""
    setup.coordinator.answers.clear()
    received = []

    def handle(broker: Broker, context: Context, request: ProduceRequest) -> Any:
        received.append(request.topic_data[0].partition_data[0].records)
        return produce(broker, context, request)

    asked: Asked[ProduceResponse] = setup.world.start(handle, request(batch()), 12)
    assert not asked.context.pipelined
    setup.world.pass_time(0.001)
    (records,) = received
    assert isinstance(records, memoryview)
    records[:] = b"\xff" * len(records)
    held = setup.world.broker.request_memory.share
    assert held.used == len(records)
    assert setup.log().log_end_offset == 0
    setup.coordinator.answers.set()
    assert codes_of(asked) == [E.NONE]
    assert len(read_records(setup.log())) == 1
    assert held.used == 0


class Marking(ScriptedCoordinator):
    """A coordinator whose first answers are late: markers of the producer overtake them."""

    def __init__(self, partition: Partition, markers: int = 1) -> None:
        super().__init__()
        self._partition = partition
        self._markers = markers
        self.later: dict[TopicPartition, ErrorCode] = {}
        """The codes of the answers that no marker overtakes."""

    async def verify(self, *about: Any, add: bool) -> dict[TopicPartition, ErrorCode]:
        codes = await super().verify(*about, add=add)
        if len(self.asked) > self._markers:
            return {**codes, **self.later}
        self._partition.append_marker(7, 0, True, 0, NOW, transaction_version=1)
        return codes


def marking(setup: Verified, monkeypatch: pytest.MonkeyPatch, markers: int = 1) -> Marking:
    coordinator = Marking(setup.world.partition("t"), markers)
    monkeypatch.setattr(setup.world.broker, "verification", coordinator)
    return coordinator


def test_a_batch_is_verified_again_after_a_marker(
    setup: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker is of the previous transaction; the present one includes the partition."""
    coordinator = marking(setup, monkeypatch)
    asked = setup.start(request(batch(), batch()), 11)
    assert not asked.context.pipelined
    assert codes_of(asked) == [E.NONE, E.NONE]
    assert [each[3] for each in coordinator.asked] == [[("t", 0), ("t", 1)], [("t", 0)]]
    log = setup.log()
    assert (log.last_stable_offset, log.log_end_offset) == (1, 2)


def marked_in_its_walk(setup: Verified, monkeypatch: pytest.MonkeyPatch) -> bytearray:
    """Return a batch; while the broker walks it for the first time, a marker is written."""
    walked = SlowBatches.walked

    async def walk(*received: Any, **options: Any) -> WalkedBatch:
        if not setup.log().log_end_offset:
            setup.world.partition("t").append_marker(7, 0, True, 0, NOW, transaction_version=1)
        return await walked(*received, **options)

    monkeypatch.setattr(SlowBatches, "walked", walk)
    return make_batch(WALKED_AT_ONCE + 1, producer=(7, 0, 0), transactional=True)


def test_a_batch_is_verified_again_after_a_marker_during_its_walk(
    setup: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = marked_in_its_walk(setup, monkeypatch)
    assert setup.codes(request(large), 11) == [E.NONE]
    assert len(setup.coordinator.asked) == 2


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_a_late_batch_of_an_ended_transaction_is_not_appended(
    setup: Verified, monkeypatch: pytest.MonkeyPatch, verdict: ErrorCode, expected: ErrorCode
) -> None:
    """The marker ended its own transaction: nothing would end another one (KIP-890)."""
    marking(setup, monkeypatch).later = {("t", 0): verdict}
    assert setup.codes(request(batch()), 11) == [expected]
    assert setup.log().last_stable_offset == setup.log().log_end_offset == 1


def test_a_batch_is_verified_a_few_times_only(
    setup: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = marking(setup, monkeypatch, markers=4)
    assert setup.codes(request(batch()), 11) == [E.NOT_ENOUGH_REPLICAS]
    assert len(coordinator.asked) == 4
    # The producer repeats it before its next batch.
    assert setup.codes(request(batch(1)), 11) == [E.NOT_ENOUGH_REPLICAS]


def test_a_batch_of_a_closed_connection_is_not_verified_again(
    setup: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction may be over, and the coordinator would confirm the next one."""
    coordinator = marking(setup, monkeypatch)
    coordinator.answers.clear()
    asked = setup.start(request(batch()), 11)
    setup.world.pass_time(0.001)
    asked.context.connection.close()
    coordinator.answers.set()
    setup.world.pass_time(0.001)
    assert len(coordinator.asked) == 1
    assert setup.log().log_end_offset == 1


def test_an_unasked_coordinator_is_not_asked_after_a_marker(
    setup: Verified, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = marked_in_its_walk(setup, monkeypatch)
    monkeypatch.setattr("lakelog.server.handlers.produce._verifies", lambda *_: False)
    assert setup.codes(request(large), 11) == [E.NONE]
    assert not setup.coordinator.asked


def test_the_marker_of_the_previous_transaction_leaves_the_answer_valid(setup: Verified) -> None:
    """With transaction version 2 the marker has the epoch of the next transaction."""
    assert setup.codes(request(batch())) == [E.NONE]
    setup.coordinator.answers.clear()
    asked = setup.start(request(batch(epoch=1)))
    setup.world.pass_time(0.001)
    setup.world.partition("t").append_marker(7, 1, True, 0, NOW, transaction_version=2)
    setup.coordinator.answers.set()
    assert codes_of(asked) == [E.NONE]


def test_each_partition_has_its_own_verdict(setup: Verified) -> None:
    setup.coordinator.codes["t", 1] = E.TRANSACTION_ABORTABLE
    plain = make_batch(producer=(7, 0, 0))
    codes = setup.codes(request(batch(), batch(), plain))
    assert codes == [E.NONE, E.TRANSACTION_ABORTABLE, E.NONE]
    assert [setup.log(index).log_end_offset for index in range(3)] == [1, 0, 1]


def test_what_cannot_begin_is_not_asked_for(setup: Verified) -> None:
    setup.world.partition("t").append_marker(7, 5, True, 0, NOW, transaction_version=0)
    old = [batch(epoch=4) for _ in range(4)]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert setup.codes(request(*old)) == [E.INVALID_PRODUCER_EPOCH, E.NONE, E.NONE, unknown]
    assert setup.coordinator.asked[0][3] == [("t", 1), ("t", 2)]


def test_partitions_are_found_by_id_from_version_13_on(setup: Verified) -> None:
    assert setup.codes(request(batch()), 13) == [E.NONE]
    assert setup.coordinator.asked[0][3] == [("t", 0)]


def test_one_request_has_one_producer(setup: Verified) -> None:
    codes = setup.codes(request(batch(), batch(producer_id=8)))
    assert codes == [E.INVALID_PRODUCER_ID_MAPPING] * 2
    assert not setup.coordinator.asked


def test_a_batch_without_its_transactional_id_is_refused(setup: Verified) -> None:
    """KIP-890, CVE-2018-1288: it has no producer to verify, even in a transaction."""
    assert setup.codes(request(batch())) == [E.NONE]
    for sequence in (0, 1):
        codes = setup.codes(request(batch(sequence), transactional_id=None))
        assert codes == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert setup.log().log_end_offset == 1


def test_a_partition_never_added_is_refused_and_nothing_is_unstable(setup: Verified) -> None:
    """KIP-890 part 1."""
    setup.coordinator.codes["t", 0] = E.INVALID_TXN_STATE
    assert setup.codes(request(batch()), 11) == [E.INVALID_TXN_STATE]
    assert setup.log().last_stable_offset == setup.log().log_end_offset == 0


def test_a_request_that_holds_no_batch_is_answered(setup: Verified) -> None:
    assert setup.codes(request(None, b"short")) == [E.INVALID_RECORD] * 2
    assert not setup.coordinator.asked


# Requests without a transaction, against a broker in memory.


def written(
    world: MemoryBroker, asked: ProduceRequest, version: int = 12
) -> list[PartitionProduceResponse]:
    response: ProduceResponse = world.ask(produce, asked, version)
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
    assert world.start(produce, plain(make_batch(), acks=0), 12).context.parts == []
    with pytest.raises(ProtocolViolation, match="UNKNOWN_TOPIC_OR_PARTITION"):
        world.start(produce, plain(make_batch(), acks=0, topic="gone"), 12)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_durable_topic_answers_after_the_flush(world: MemoryBroker, acks: int) -> None:
    world.create("t", durability="fsync")
    asked = world.start(produce, plain(make_batch(), acks=acks), 12)
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


def replicated(world: MemoryBroker, **configs: str) -> Partition:
    """Return partition 0 of `t`, with a follower in sync that has fetched nothing."""
    world.create("t", 2, **configs)
    partition = world.partition("t")
    partition.assume(Role(partition.leader_epoch, 1, True, (1, 2), (2,)), 0)
    return partition


def test_a_commit_between_two_appends_of_a_request_is_not_missed(
    world: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower fetches partition 0 while the broker still walks the batch of partition 1."""
    partition, walked = replicated(world), SlowBatches.walked

    async def walk(*batch: Any, **options: Any) -> WalkedBatch:
        if partition.log.log_end_offset:
            partition.note_fetch(2, 0, partition.log.log_end_offset, 0)
        return await walked(*batch, **options)

    monkeypatch.setattr(SlowBatches, "walked", walk)
    batches = [make_batch(WALKED_AT_ONCE + 1) for _ in range(2)]
    waiting = world.start(produce, plain(*batches, acks=-1, timeout_ms=60_000), 12)
    world.pass_time(1.0)
    assert partition.watermark.offset == WALKED_AT_ONCE + 1
    assert waiting.is_answered


def test_a_leader_that_needs_no_flush_any_more_acknowledges(world: MemoryBroker) -> None:
    """With `acks=1`, while the follower has not fetched."""
    partition = replicated(world, durability="fsync")
    waiting = world.start(produce, plain(make_batch(), timeout_ms=60_000), 12)
    assert not waiting.is_answered
    partition.use_config(partition.log.config._replace(durability="page-cache"))
    assert waiting.is_answered
