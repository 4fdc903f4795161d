from __future__ import annotations

import errno
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.shard import TransactionMarker
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, WrittenTo
from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from lakelog.records.batch import iter_batches
from lakelog.replica.role import NotLeaderError
from lakelog.server.coordinators.leaders import PartitionLeaders
from lakelog.server.coordinators.partition_log import (
    ClusterProducerLogs,
    LocalPartitionLog,
    LocalPartitionLogs,
)
from lakelog.server.inter_broker.exchange import PeerDisconnectedError
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction, make_batch

TIMEOUT_S = 5.0


def logs_of(world: MemoryBroker) -> LocalPartitionLogs:
    broker = world.broker
    parts = broker.partitions, broker.purgatory, broker.clock, world.tasks, broker.checks
    return LocalPartitionLogs("orders", TIMEOUT_S, *parts, is_current=lambda: True)


def log_of(world: MemoryBroker) -> LocalPartitionLog:
    """Return the log of `orders` in its current leader epoch."""
    return logs_of(world).open(0, world.partition("orders").leader_epoch)


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_an_append_is_committed_when_it_returns(world: MemoryBroker, durability: str) -> None:
    world.create("orders", durability=durability)
    log = log_of(world)
    assert world.run(log.append(make_batch(3))) == 0
    assert world.partition("orders").watermark.offset == 3
    assert world.run(log.append(make_batch(2))) == 3


def test_a_log_is_read_batch_by_batch_from_its_start(world: MemoryBroker) -> None:
    world.create("orders")
    log = log_of(world)
    for _ in range(2):
        world.run(log.append(make_batch(2)))
    assert world.run(log.start_offset()) == 0
    found = [header.base_offset for header, _ in iter_batches(world.run(log.read(1)))]
    assert found[0] == 0
    assert world.run(log.read(4)) == b""
    world.partition("orders").delete_records(2)
    assert world.run(log.start_offset()) == 2


def test_a_log_of_a_deleted_topic_does_not_write_to_its_successor(world: MemoryBroker) -> None:
    world.create("orders")
    log = log_of(world)
    world.delete("orders")
    world.create("orders")
    with pytest.raises(KafkaError) as error:
        world.run(log.append(make_batch()))
    assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.partition("orders").log.log_end_offset == 0


def test_a_log_is_opened_in_the_current_leader_epoch_only(world: MemoryBroker) -> None:
    world.create("orders")
    logs = logs_of(world)
    epoch = world.partition("orders").leader_epoch
    world.change_leader("orders", 1, (1,))
    with pytest.raises(NotLeaderError):
        logs.open(0, epoch)
    logs.open(0, epoch + 1)
    world.change_leader("orders", 2, (1, 2))
    with pytest.raises(NotLeaderError):
        logs.open(0, epoch + 2)


@pytest.mark.parametrize("leader", [1, 2])
def test_every_use_ends_with_the_leader_epoch(world: MemoryBroker, leader: int) -> None:
    """With another epoch of this broker too: another leader may have been between them."""
    world.create("orders")
    log = log_of(world)
    world.run(log.append(make_batch()))
    world.change_leader("orders", 1, (1, 2), raises=0)
    waiting = [world.tasks.spawn(log.append(make_batch()), name="an append") for _ in range(2)]
    waiting.append(world.tasks.spawn(log.start_offset(), name="a load"))
    world.pass_time(TIMEOUT_S / 2)
    assert not any(each.done() for each in waiting), "the other replica has not fetched"
    world.change_leader("orders", leader, (leader,), raises=2)
    marker = TransactionMarker(7, 0, True, 0, 0)
    late = log.append(make_batch()), log.append_marker(marker), log.start_offset(), log.read(0)
    for each in (*waiting, *late):
        with pytest.raises(NotLeaderError):
            world.run(each)


def test_a_device_that_fails_is_an_error(world: MemoryBroker) -> None:
    world.create("orders")
    world.disk.fail("write", errno.EIO, suffix=".log")
    log = log_of(world)
    for _ in range(2):  # the partition stays offline
        with pytest.raises(KafkaError) as error:
            world.run(log.append(make_batch()))
        assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_append_that_is_not_replicated_in_time_is_of_unknown_outcome(
    world: MemoryBroker,
) -> None:
    world.create("orders")
    log = log_of(world)
    world.change_leader("orders", 1, (1, 2), raises=0)
    started = world.clock.monotonic()
    for append in (
        log.append(make_batch()),
        log.append_marker(TransactionMarker(7, 0, True, 0, 0)),
    ):
        with pytest.raises(KafkaError) as error:
            world.run(append)
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert world.clock.monotonic() == started + 2 * TIMEOUT_S
    assert world.partition("orders").log.log_end_offset == 2


def test_a_load_waits_for_replicas_without_a_limit(world: MemoryBroker) -> None:
    """A shard that began without committed records would decide differently from the last one."""
    world.create("orders")
    world.append("orders")
    world.change_leader("orders", 1, (1, 2), raises=0)
    world.append("orders")
    loading = world.tasks.spawn(log_of(world).start_offset(), name="a load")
    world.pass_time(600)
    assert not loading.done()
    world.partition("orders").note_fetch(2, 1, 2, world.clock.monotonic_ms())
    assert world.run(loading) == 0


def test_nothing_is_appended_below_min_insync_replicas(world: MemoryBroker) -> None:
    world.create("orders", min_insync_replicas="2")
    log = log_of(world)
    for append in (
        log.append(make_batch()),
        log.append_marker(TransactionMarker(7, 0, True, 0, 0)),
    ):
        with pytest.raises(KafkaError) as error:
            world.run(append)
        assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.partition("orders").log.log_end_offset == 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("is_late", [False, True], ids=["at the election", "while it loads"])
def test_groups_are_loaded_while_too_few_replicas_are_in_sync(
    world: MemoryBroker, topic: str, is_late: bool
) -> None:
    world.create(topic, min_insync_replicas="2")
    broker = world.broker
    parts = broker.partitions, broker.purgatory, broker.clock, world.tasks, broker.checks
    logs = LocalPartitionLogs(topic, TIMEOUT_S, *parts, is_current=lambda: True)
    world.append(topic)
    world.change_leader(topic, 1, (1, 2))
    world.append(topic, count=3)
    if not is_late:
        world.change_leader(topic, 1, (1,))
    partition = world.partition(topic)
    log = logs.open(0, partition.leader_epoch)
    loading = world.tasks.spawn(log.start_offset(), name="a load")
    world.pass_time(TIMEOUT_S)
    if is_late:
        assert not loading.done(), "the other replica may fetch"
        world.change_leader(topic, 1, (1,), raises=0)
        world.pass_time(TIMEOUT_S)
    assert partition.watermark.offset < partition.log.log_end_offset
    is_loaded = topic == "__consumer_offsets"
    assert loading.done() == is_loaded, "a transaction coordinator acts on decisions that it loads"
    if is_loaded:
        (_, records) = iter_batches(world.run(log.read(0)))
        assert records[0].last_offset == 3, "all that may be committed"
    loading.cancel()
    world.pass_time(0)


E = ErrorCode
OWN, OTHER = 1, 2


class OtherBroker:
    """Answers with one producer for each partition, or fails."""

    def __init__(
        self, state: ProducerState | None = None, code: ErrorCode = E.NONE, failure: Any = None
    ) -> None:
        self.state = state
        self.code = code
        self.failure = failure
        self.requests: list[DescribeProducersRequest] = []

    async def request(self, message: Any, *, timeout_s: float) -> Any:
        self.requests.append(message)
        if self.failure is not None:
            raise self.failure
        states = [] if self.state is None else [self.state]
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(
                            partition_index=index, error_code=self.code, active_producers=states
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in message.topics
            ]
        )


def last(world: MemoryBroker, other: OtherBroker | None, *targets: WrittenTo) -> list[int]:
    peers: dict[int, Any] = {OTHER: other}
    broker = world.broker
    leaders = PartitionLeaders(OWN, lambda: broker.image, peers.get, 30.0)
    logs = ClusterProducerLogs(leaders, broker.partitions, world.tasks)
    found = world.run(logs.last_sequences(targets))
    return [found[written_to] for written_to in targets]


def state(epoch: int, sequence: int, start: int) -> ProducerState:
    return ProducerState(
        producer_id=7,
        producer_epoch=epoch,
        last_sequence=sequence,
        coordinator_epoch=-1,
        current_txn_start_offset=start,
    )


def test_the_leaders_of_other_partitions_are_asked_for_these_producers_only(
    world: MemoryBroker,
) -> None:
    world.create("orders", 3)
    for index in (0, 2):
        world.change_leader("orders", OTHER, (OTHER,), index=index)
    other = OtherBroker(state(3, 41, 10))
    targets = [WrittenTo("orders", index, 7, 3) for index in (2, 1, 0)]
    assert last(world, other, *targets) == [41, NO_SEQUENCE, 41]
    (request,) = other.requests
    assert request.producer_ids == [7]
    assert [(each.name, each.partition_indexes) for each in request.topics] == [("orders", [0, 2])]


@pytest.mark.parametrize("found", [None, state(2, 41, 10), state(3, 41, -1)])
def test_another_epoch_or_an_ended_transaction_does_not_count(
    world: MemoryBroker, found: ProducerState | None
) -> None:
    world.create("orders", 1)
    world.change_leader("orders", OTHER, (OTHER,))
    assert last(world, OtherBroker(found), WrittenTo("orders", 0, 7, 3)) == [NO_SEQUENCE]


def test_this_broker_reads_its_own_partitions(world: MemoryBroker) -> None:
    world.create("orders", 1)
    world.append("orders", producer=(6, 2, 0), count=3)
    now = world.clock.wall_ms()
    append_in_transaction(world.partition("orders").log, (7, 3, 0), now_ms=now)
    targets = [WrittenTo("orders", 0, *each) for each in ((7, 3), (7, 4), (6, 2), (8, 0))]
    assert last(world, None, *targets) == [0, NO_SEQUENCE, NO_SEQUENCE, NO_SEQUENCE]


def test_a_deleted_topic_has_no_records(world: MemoryBroker) -> None:
    assert last(world, None, WrittenTo("gone", 0, 7, 3)) == [NO_SEQUENCE]


@pytest.mark.parametrize(
    ("leader", "other", "code"),
    [
        (OTHER, OtherBroker(failure=PeerDisconnectedError("lost")), E.NETWORK_EXCEPTION),
        (OTHER, OtherBroker(code=E.NOT_LEADER_OR_FOLLOWER), E.NOT_LEADER_OR_FOLLOWER),
        (OTHER, None, E.BROKER_NOT_AVAILABLE),
        (-1, OtherBroker(), E.BROKER_NOT_AVAILABLE),
    ],
    ids=["lost", "moved", "no address", "no leader"],
)
def test_without_an_answer_nothing_is_known(
    world: MemoryBroker, leader: int, other: OtherBroker | None, code: ErrorCode
) -> None:
    world.create("orders", 1)
    world.change_leader("orders", leader, (OTHER,))
    with pytest.raises(KafkaError) as raised:
        last(world, other, WrittenTo("orders", 0, 7, 3))
    assert raised.value.code is code
