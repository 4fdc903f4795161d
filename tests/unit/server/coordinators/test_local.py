"""The events of the broker that its coordinators follow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.coordinator import GROUP_TOPIC
from lakelog.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord, Record
from lakelog.protocol.groups import ConsumerGroupHeartbeatRequest
from lakelog.protocol.transactions import InitProducerIdRequest
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.coordinators.local import ProducerIds
from lakelog.server.handlers.groups import consumer_group_heartbeat, join_group
from lakelog.server.handlers.offsets import offset_commit
from lakelog.storage.folder.ownership import CLEAN_SHUTDOWN
from lakelog.storage.marks import BOOT_ID
from memory_broker import Asked, MemoryBroker
from memory_clients import commit, commit_request, committed, join, join_request
from socketless_broker import SocketlessBroker
from storage_kit import make_batch


async def initialise(data: Path, durability: str, seed: int) -> int:
    """The producer id that a client is given by a broker that is started for it and stopped."""
    settings = {"log_durability": durability, "transaction_state_log_num_partitions": "1"}
    broker = SocketlessBroker(data, seed=seed, settings=settings)
    await broker.start()
    try:
        await broker.server.broker.topics.ensure_transaction_topic()
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        answer = await broker.server.broker.transactions.init_producer_id(request)
        assert answer.code is ErrorCode.NONE
        producer_id: int = answer.producer_id
        return producer_id
    finally:
        await broker.stop()


@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
@pytest.mark.parametrize(
    ("left", "keeps"),
    [
        ((CLEAN_SHUTDOWN, BOOT_ID), True),
        ((CLEAN_SHUTDOWN,), True),
        ((BOOT_ID,), True),
        ((), False),
    ],
    ids=["clean", "clean before a boot", "kill", "power failure"],
)
def test_transactional_producers_get_new_ids_where_epochs_may_be_lost(
    tmp_path: Path, left: tuple[str, ...], keeps: bool, durability: str
) -> None:
    """With any durability: it may have been changed since the power failure."""

    async def scenario() -> None:
        first = await initialise(tmp_path, "page-cache", 1)
        for name in {CLEAN_SHUTDOWN, BOOT_ID}.difference(left):
            (tmp_path / name).unlink()
        assert (await initialise(tmp_path, durability, 2) == first) is keeps

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_so_they_do_when_the_broker_was_stopped_cleanly_before_they_came(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await initialise(tmp_path, "page-cache", 1)
        (tmp_path / CLEAN_SHUTDOWN).unlink()
        (tmp_path / BOOT_ID).unlink()
        for seed in (2, 3):
            idle = SocketlessBroker(tmp_path, seed=seed)
            await idle.start()
            await idle.stop()
        assert await initialise(tmp_path, "page-cache", 4) != first

    asyncio.run(asyncio.wait_for(scenario(), 120))


OWN, OTHER = 1, 2
E = ErrorCode
BOTH = (OWN, OTHER)


def started_commit(world: MemoryBroker, offset: int) -> Asked[Any]:
    """Send an OffsetCommit, which waits for the other replica."""
    return world.start(offset_commit, commit_request(offset), 9)


def code_of(asked: Asked[Any]) -> int:
    code: int = asked.response().topics[0].partitions[0].error_code
    return code


def replicate(world: MemoryBroker, topic: str = GROUP_TOPIC) -> None:
    """Have the other replica fetch the whole log."""
    partition = world.partition(topic)
    end = partition.log.log_end_offset
    partition.note_fetch(OTHER, 1, end, world.clock.monotonic_ms())
    world.pass_time(0.01)


def test_another_leader_ends_a_shard_and_all_requests_that_wait_for_it(
    coordinators: MemoryBroker,
) -> None:
    world = coordinators
    join(world, "members")
    second = world.ask(join_group, join_request(group="members"), 9).member_id
    rejoin = world.start(join_group, join_request(second, "members"), 9)
    world.pass_time(0.01)
    assert not rejoin.is_answered, "it waits for the first member"
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    in_flight = started_commit(world, 7)
    queued = started_commit(world, 8)
    world.pass_time(0.01)
    assert not in_flight.is_answered
    world.change_leader(GROUP_TOPIC, OTHER, BOTH)
    assert world.broker.groups.leader_epoch(0) is None
    assert (code_of(in_flight), code_of(queued)) == (E.NOT_COORDINATOR, E.NOT_COORDINATOR)
    assert rejoin.response().error_code == E.NOT_COORDINATOR
    assert commit(world, 9) == E.NOT_COORDINATOR


def test_without_its_lease_a_coordinator_answers_that_it_is_none(
    coordinators: MemoryBroker,
) -> None:
    world = coordinators
    assert commit(world, 7) == E.NONE
    world._server._coordinators.deny_lease()
    assert commit(world, 8) == E.NOT_COORDINATOR


def test_a_change_of_the_isr_keeps_the_shard(coordinators: MemoryBroker) -> None:
    world = coordinators
    in_flight = started_commit(world, 7)
    shard = world.broker.groups._host.shard(0)
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    world.change_leader(GROUP_TOPIC, OWN, (OWN,), raises=0)
    assert world.broker.groups._host.shard(0) is shard
    assert code_of(in_flight) == E.NONE


def test_a_shard_is_loaded_when_the_high_watermark_has_reached_the_log_end(
    coordinators: MemoryBroker,
) -> None:
    """The last leader may have committed records above the new one's high watermark."""
    world = coordinators
    assert commit(world, 7) == E.NONE
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    in_flight = started_commit(world, 8)
    world.pass_time(0.01)
    world.change_leader(GROUP_TOPIC, OWN, BOTH)
    assert code_of(in_flight) == E.NOT_COORDINATOR
    world.pass_time(60)
    assert commit(world, 9) == E.COORDINATOR_LOAD_IN_PROGRESS
    replicate(world)
    world.change_leader(GROUP_TOPIC, OWN, (OWN,), raises=0)
    assert committed(world) == 8
    assert commit(world, 9) == E.NONE
    assert committed(world) == 9


@pytest.mark.parametrize("leader", [OWN, OTHER], ids=["its next epoch", "another leader"])
def test_an_epoch_that_ends_during_the_load_ends_the_load(
    coordinators: MemoryBroker, caplog: pytest.LogCaptureFixture, leader: int
) -> None:
    world = coordinators
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    started_commit(world, 8)
    world.pass_time(0.01)
    world.change_leader(GROUP_TOPIC, OWN, BOTH)
    caplog.clear()
    world.change_leader(GROUP_TOPIC, leader, BOTH)
    if leader == OWN:
        replicate(world)
        assert committed(world) == 8
    else:
        world.pass_time(60)
        assert world.broker.groups.partitions == []
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_epochs_that_pass_before_a_load_begins_load_the_newest(
    coordinators: MemoryBroker,
) -> None:
    world = coordinators
    partition = world.partition(TRANSACTION_TOPIC)
    first = partition.leader_epoch
    for topic in (GROUP_TOPIC, TRANSACTION_TOPIC):
        for _ in range(3):
            world.change_leader(topic, OWN, (OWN,))
    world.pass_time(0.01)
    assert world.broker.transactions.leader_epoch(0) == first + 3
    assert commit(world, 9) == E.NONE


def test_a_start_does_not_wait_for_followers(coordinators: MemoryBroker) -> None:
    """They cannot fetch before the broker accepts connections."""
    world = coordinators
    assert commit(world, 7) == E.NONE
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    started_commit(world, 8)
    world.pass_time(0.01)
    loaded_at_start = world._server._coordinators
    loaded_at_start.close()
    world.run(loaded_at_start.load(world.broker.image))
    assert commit(world, 9) == E.COORDINATOR_LOAD_IN_PROGRESS
    replicate(world)
    assert committed(world) == 8


def test_after_a_commit_that_was_not_replicated_in_time_the_shard_is_loaded_from_the_log(
    coordinators: MemoryBroker,
) -> None:
    world = coordinators
    assert commit(world, 7) == E.NONE
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    assert code_of(started_commit(world, 8)) == E.COORDINATOR_NOT_AVAILABLE
    assert commit(world, 9) == E.COORDINATOR_LOAD_IN_PROGRESS, "8 may yet be committed"
    replicate(world)
    assert committed(world) == 8


def test_a_commit_below_min_insync_replicas_is_refused_and_the_shard_is_kept(
    coordinators: MemoryBroker,
) -> None:
    world = coordinators
    shard = world.broker.groups._host.shard(0)
    partition = world.partition(GROUP_TOPIC)
    partition.use_config(partition.log.config._replace(min_insync_replicas=2))
    assert commit(world, 7) == E.COORDINATOR_NOT_AVAILABLE
    world.change_leader(GROUP_TOPIC, OWN, BOTH, raises=0)
    in_flight = started_commit(world, 8)
    world.pass_time(0.01)
    replicate(world)
    assert code_of(in_flight) == E.NONE
    assert world.broker.groups._host.shard(0) is shard


def assigned(world: MemoryBroker, epoch: int) -> tuple[set[bytes], int]:
    """Return the topic ids of a member's last assignment in some heartbeats, and its epoch."""
    topics: set[bytes] = set()
    for _ in range(4):
        request = ConsumerGroupHeartbeatRequest(
            group_id="team",
            member_id="member",
            member_epoch=epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["orders", "later"],
            topic_partitions=[],
        )
        response = world.ask(consumer_group_heartbeat, request, 1)
        assert response.error_code == E.NONE
        epoch = response.member_epoch
        if response.assignment is not None:
            topics = {topic.topic_id for topic in response.assignment.topic_partitions}
        world.pass_time(1.5)
    return topics, epoch


@pytest.mark.parametrize("is_loaded", [False, True], ids=["entries", "a snapshot"])
def test_consumer_groups_follow_their_topics_also_when_a_snapshot_replaces_the_image(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch, is_loaded: bool
) -> None:
    publish = MetadataLog._publish

    async def jump(
        self: MetadataLog, image: MetadataImage, records: tuple[Record, ...] | None
    ) -> None:
        await publish(self, image, () if is_loaded else records)

    _, epoch = assigned(coordinators, 0)
    monkeypatch.setattr(MetadataLog, "_publish", jump)
    topic_id = coordinators.create("later")
    found, epoch = assigned(coordinators, epoch)
    assert topic_id in found
    coordinators.delete("later")
    left, _ = assigned(coordinators, epoch)
    assert left and topic_id not in left


HANGING = (4711, 0)


def is_hanging(world: MemoryBroker) -> bool:
    """Return whether the transaction that no coordinator knows is open; begin it first."""
    partition = world.partition("orders")
    producers, now_ms = partition.log.producers, world.clock.wall_ms()
    if HANGING[0] not in producers.entries:
        verification = partition.start_verification(*HANGING, 0, now_ms, supports_epoch_bump=False)
        batch = make_batch(1, producer=(*HANGING, 0), transactional=True)
        partition.append(batch, now_ms, verification=verification)
    return producers.is_in_transaction(*HANGING)


@pytest.mark.parametrize("topic", ["orders", TRANSACTION_TOPIC])
def test_in_a_cluster_an_election_ends_hanging_transactions(
    coordinators: MemoryBroker, topic: str
) -> None:
    """The new leader may lack a marker, or the coordinator its transactions."""
    world = coordinators
    world._server._coordinators.join_others()
    assert is_hanging(world)
    world.pass_time(200)
    assert is_hanging(world), "no leader has changed"
    world.change_leader(topic, OWN, (OWN,))
    world.pass_time(5)
    assert not is_hanging(world)


def test_a_broker_alone_ends_them_when_it_starts(coordinators: MemoryBroker) -> None:
    assert is_hanging(coordinators)
    coordinators.change_leader("orders", OWN, (OWN,))
    coordinators.pass_time(5)
    assert is_hanging(coordinators)
    coordinators.restart()
    coordinators.pass_time(0.1)
    assert not is_hanging(coordinators)


def test_in_a_cluster_a_coordinator_that_is_cut_off_refuses_requests(
    coordinators: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker may coordinate in its place; the other one does not answer either."""
    world = coordinators
    other = BrokerRecord(OTHER, b"f" * 16, 4, (), None)
    world.run(world.broker.metadata.submit(lambda image: Plan((other,), None)))
    world._server._coordinators.join_others()
    world.pass_time(100)
    assert commit(world, 7) == E.NONE

    async def unavailable(*_: object) -> None:
        raise MetadataUnavailable("cut off")

    with monkeypatch.context() as cut:
        cut.setattr(world.metadata, "read", unavailable)
        world.pass_time(10)
        assert commit(world, 8) == E.NOT_COORDINATOR
    world.pass_time(10)
    assert committed(world) == 7


class Blocks:
    """The metadata log, which reserves blocks of three ids, or fails."""

    def __init__(self) -> None:
        self.reserved = 0
        self.fails = False
        self.forgotten_end = 0

    async def reserve(self) -> range:
        await asyncio.sleep(0)
        if self.fails:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        self.reserved += 1
        return range(self.reserved * 3 - 3, self.reserved * 3)


def run(scenario: Callable[[ProducerIds, Blocks], Awaitable[None]]) -> None:
    async def main() -> None:
        tasks, blocks = AsyncioTasks(asyncio.get_running_loop()), Blocks()
        await scenario(ProducerIds(blocks.reserve, tasks, lambda: blocks.forgotten_end), blocks)
        tasks.close()

    asyncio.run(main())


def test_callers_that_wait_together_share_a_block_and_get_ids_in_order() -> None:
    async def scenario(ids: ProducerIds, blocks: Blocks) -> None:
        assert await asyncio.gather(*(ids.next() for _ in range(5))) == [0, 1, 2, 3, 4]
        assert blocks.reserved == 2
        assert await ids.next() == 5

    run(scenario)


def test_a_failed_reservation_fails_its_callers_and_no_later_one() -> None:
    async def scenario(ids: ProducerIds, blocks: Blocks) -> None:
        blocks.fails = True
        for found in await asyncio.gather(ids.next(), ids.next(), return_exceptions=True):
            assert isinstance(found, KafkaError)
        with pytest.raises(KafkaError):
            await ids.next()
        blocks.fails = False
        assert await ids.next() == 0

    run(scenario)


def test_ids_whose_epochs_may_be_forgotten_are_not_assigned() -> None:
    async def scenario(ids: ProducerIds, blocks: Blocks) -> None:
        assert await ids.next() == 0
        blocks.forgotten_end = 2
        assert await ids.next() == 2
        assert blocks.reserved == 1
        blocks.forgotten_end = 7
        assert await ids.next() == 7

    run(scenario)
