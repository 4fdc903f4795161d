"""A follower's log beside its leader's, over the leader's own Fetch handler."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from counted_work import work_run
from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionData,
    ReplicaState,
)
from lakelog.replica.role import Role
from lakelog.server.handlers.fetch import fetch, list_offsets
from lakelog.server.replication.leader_session import Fetched, LeaderSession, position_of
from lakelog.storage.preparation import wait_for
from memory_broker import MemoryBroker
from replica_pair import EPOCH, FETCH, FOLLOWER, LEADER, ReplicaPair
from storage_kit import NOW, make_batch, read_batches


class Cluster(ReplicaPair):
    """Both replicas, and the session of the follower with the leader."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.session = LeaderSession(FOLLOWER)
        self.session.add(self.follower)

    def request(self, *, broker_epoch: int = EPOCH) -> FetchRequest:
        request = self.session.request(broker_epoch, 0.0)
        assert request is not None
        return request

    def fetch(self, *, broker_epoch: int = EPOCH) -> list[Fetched]:
        """Fetch once, and apply records."""
        request = self.request(broker_epoch=broker_epoch)
        sender = self.session._node_id
        response = self.broker.ask(fetch, request, FETCH, sender=sender)
        found = list(self.session.on_response(response))
        for partition, position, data in found:
            if data.error_code or data.diverging_epoch.end_offset >= 0:
                continue
            records = memoryview(data.records or b"")
            offsets = data.high_watermark, data.log_start_offset
            partition.append_fetched(records, position.leader_epoch, *offsets, NOW)
        return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MemoryBroker() as broker:
        yield Cluster(broker)


def test_an_acknowledged_record_is_in_both_logs(cluster: Cluster) -> None:
    asked = cluster.produce(acks=-1)
    waits = [asked.is_answered]
    for _ in range(2):
        cluster.fetch()
        waits.append(asked.is_answered)
    assert waits == [False, False, True], "the second fetch says that the follower has the record"
    assert asked.response().responses[0].partition_responses[0].error_code == 0
    assert read_batches(cluster.follower.log) == read_batches(cluster.leader.log)
    assert cluster.leader.watermark.offset == 2
    assert cluster.follower.watermark.offset == 2, "the leader had counted it before it answered"


def test_a_follower_waits_for_records_and_gets_uncommitted_ones(cluster: Cluster) -> None:
    cluster.fetch()
    waiting = cluster.broker.start(fetch, cluster.request(), FETCH, sender=FOLLOWER)
    waits = [waiting.is_answered]
    cluster.produce(acks=-1)
    cluster.broker.pass_time(0.01)
    assert [*waits, waiting.is_answered] == [False, True]
    assert cluster.leader.watermark.offset == 0


def test_a_position_has_the_epoch_of_the_last_record(cluster: Cluster) -> None:
    """Not the epoch of a leader epoch in which this replica wrote nothing."""
    partition = cluster.leader
    partition.append(make_batch(1), NOW)
    written_in = partition.leader_epoch
    partition.assume(partition.role._replace(leader_epoch=written_in + 1), 0)
    assert partition.log.leader_epochs.latest == written_in + 1
    position = position_of(partition)
    assert (position.leader_epoch, position.last_epoch) == (written_in + 1, written_in)


def test_an_idle_session_asks_for_nothing(cluster: Cluster) -> None:
    cluster.fetch()
    request = cluster.request()
    assert request.session_id > 0
    assert (request.topics, request.forgotten_topics_data) == ([], [])


def test_a_removed_partition_is_forgotten_by_the_leader(cluster: Cluster) -> None:
    cluster.fetch()
    cluster.session.remove(cluster.follower)
    assert cluster.session.request(EPOCH, 0.0) is None
    assert not cluster.session


def test_a_lost_session_begins_with_all_partitions(cluster: Cluster) -> None:
    cluster.fetch()
    refused = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert not list(cluster.session.on_response(refused))
    request = cluster.request()
    assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)


def test_a_partition_that_failed_rests_and_is_asked_again(cluster: Cluster) -> None:
    cluster.fetch()
    cluster.session.rest(cluster.follower, 10.0)
    assert cluster.session.request(EPOCH, 10.0) is None
    request = cluster.session.request(EPOCH, 11.0)
    assert request is not None
    assert not request.forgotten_topics_data


@pytest.mark.parametrize("seed", range(10))
def test_a_deposed_leader_gives_up_what_its_successor_does_not_have(
    cluster: Cluster, seed: int
) -> None:
    """KIP-101, KIP-279: epochs decide, never the high watermark."""
    chance = random.Random(seed)
    for _ in range(3):
        cluster.broker.append("t", count=2)
        cluster.fetch()
    # The follower led in epochs that its successor has never heard of, and wrote there.
    own = cluster.follower
    for _ in range(chance.randint(1, 2)):
        epoch = own.leader_epoch + 1
        own.assume(Role(epoch, FOLLOWER, True, (FOLLOWER,)), 0)
        for _ in range(chance.randint(0, 3)):
            own.append(make_batch(chance.randint(1, 4)), NOW)
        cluster.change((LEADER,), epoch_rises=True)
    cluster.change((LEADER,), epoch_rises=True)
    cluster.broker.append("t", count=3)
    own.assume(cluster.role_in(), 0)
    for _ in range(6):
        for partition, position, data in cluster.fetch():
            diverging = data.diverging_epoch
            if diverging.end_offset >= 0:
                end = diverging.epoch, diverging.end_offset, position.leader_epoch
                wait_for(partial(partition.truncate, *end))
    assert read_batches(own.log) == read_batches(cluster.leader.log)
    assert own.log.leader_epochs.entries == cluster.leader.log.leader_epochs.entries


def test_a_follower_that_is_too_far_behind_begins_at_the_leaders_start(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.broker.append("t", count=2)
    cluster.change((LEADER,))
    cluster.leader.delete_records(4)
    ((partition, position, data),) = cluster.fetch()
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    wanted = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)]
    )
    found: ListOffsetsResponse = cluster.broker.ask(
        list_offsets, ListOffsetsRequest(replica_id=-1, topics=[wanted]), 6
    )
    partition.restart_at(found.topics[0].partitions[0].offset, position.leader_epoch)
    cluster.fetch()
    log = cluster.follower.log
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert read_batches(log) == read_batches(cluster.leader.log)
    cluster.store.memory_disk.kill()
    cluster.store.start()
    assert cluster.store.directory.logs["t", 0].log_end_offset == 6


@pytest.mark.parametrize("has_fetched", [False, True])
@pytest.mark.parametrize("sender", [None, 3], ids=["a client", "another broker"])
@pytest.mark.parametrize("version", [12, FETCH])
def test_nothing_else_fetches_in_the_name_of_a_follower(
    cluster: Cluster, version: int, sender: int | None, has_fetched: bool
) -> None:
    """A forged position would commit records that the follower does not have."""
    if has_fetched:
        cluster.fetch()
    asked = cluster.produce(acks=-1)
    forged = FetchPartition(fetch_offset=2, partition_max_bytes=1)
    topic = FetchTopic(topic="t", topic_id=cluster.leader.topic_id, partitions=[forged])
    state = ReplicaState(replica_id=FOLLOWER, replica_epoch=EPOCH)
    request = FetchRequest(
        replica_id=FOLLOWER if version < FETCH else -1, replica_state=state, topics=[topic]
    )
    response = cluster.broker.ask(fetch, request, version, sender=sender)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not response.responses
    assert cluster.leader.watermark.offset == 0
    assert not asked.is_answered


@pytest.mark.parametrize(("node_id", "epoch"), [(3, EPOCH), (FOLLOWER, EPOCH - 1)])
def test_only_assigned_brokers_in_their_present_epoch_may_follow(
    cluster: Cluster, node_id: int, epoch: int
) -> None:
    """KIP-903."""
    cluster.broker.append("t")
    cluster.fetch()
    cluster.session._node_id = node_id
    cluster.session.lose_session()
    ((_, _, data),) = cluster.fetch(broker_epoch=epoch)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not data.records


def test_a_position_that_is_not_durable_is_left_out(cluster: Cluster) -> None:
    own = cluster.follower
    cluster.broker.append("t")
    cluster.fetch()
    assert cluster.request().topics
    own.use_config(own.log.config._replace(durability="fsync"))
    cluster.broker.append("t")
    cluster.session.lose_session()
    assert cluster.session.request(EPOCH, 0.0) is None
    own.log.flush()
    assert cluster.session.request(EPOCH, 1.0) is not None


def idle(index: int) -> Any:
    """Return a partition of which only the position is asked."""
    epochs = SimpleNamespace(epoch_of=lambda offset: 1)
    log = SimpleNamespace(log_end_offset=5, log_start_offset=0, leader_epochs=epochs)
    watermark = SimpleNamespace(is_written=True, by_flush=False)
    return SimpleNamespace(key=(b"t" * 16, index), leader_epoch=1, log=log, watermark=watermark)


def cost_of_one_change(partitions: int) -> int:
    """Return the bytecodes of a request after a response with one of so many partitions."""
    session = LeaderSession(FOLLOWER)
    followed = [idle(index) for index in range(partitions)]
    for partition in followed:
        session.add(partition)
    session.request(EPOCH, 0.0)
    news = FetchableTopicResponse(topic_id=b"t" * 16, partitions=[PartitionData(partition_index=3)])
    for wanted in (1, 0):
        (fetched,) = session.on_response(FetchResponse(session_id=7, responses=[news]))
        fetched.partition.log.log_end_offset += 1
        if wanted:
            session.request(EPOCH, 0.0)
    found: list[FetchRequest | None] = []
    cost = work_run(lambda: found.append(session.request(EPOCH, 0.0)))["opcode"]
    assert found[0] is not None
    assert [len(topic.partitions) for topic in found[0].topics] == [1]
    return cost


def test_a_request_costs_as_much_as_has_changed() -> None:
    assert cost_of_one_change(3000) == cost_of_one_change(300)


def idle_cost(topics: int) -> int:
    """Return the bytecodes of the leader for a fetch while nothing happens."""
    with MemoryBroker() as broker:
        cluster = Cluster(broker)
        for number in range(topics):
            cluster.session.add(cluster.another_topic(f"n{number}"))
        cluster.session._followed.pop(cluster.follower.key)
        cluster.session._moved.pop(cluster.follower.key)
        costs = []
        for _ in range(3):
            request = cluster.request()
            request.max_wait_ms = 0
            asked: list[FetchResponse] = []
            work = work_run(
                lambda request=request, asked=asked: asked.append(  # type: ignore[misc]
                    broker.ask(fetch, request, FETCH, sender=FOLLOWER)
                )
            )
            list(cluster.session.on_response(asked[0]))
            costs.append(work["opcode"])
            broker.pass_time(60.0)
        partition = broker.partition("n0")
        follower = partition.followers.get(FOLLOWER)
        assert follower is not None
        now_ms = int(broker.clock.monotonic() * 1000)
        assert not follower.lags(1, now_ms, 61_000), "it was caught up a minute ago"
        assert follower.lags(1, now_ms, 59_000)
        return costs[-1]


def test_a_fetch_costs_the_leader_nothing_for_idle_partitions() -> None:
    assert idle_cost(40) == idle_cost(80)


def test_a_removed_partition_is_no_reason_to_hurry(cluster: Cluster) -> None:
    assert cluster.session.are_others_unflushed([])
    cluster.session.remove(cluster.follower)
    assert not cluster.session.are_others_unflushed([])
