"""The fetches of a follower that go over a connection, which may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from lakelog.protocol.fetch import FetchRequest, ListOffsetsRequest
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.handlers.fetch import fetch, list_offsets
from lakelog.server.inter_broker.exchange import PeerDisconnectedError
from lakelog.server.replication.replica_fetcher import (
    ReplicaFetcher,
    ReplicaFetcherManager,
    being_flushed,
    flushed,
)
from lakelog.wire.schema import Message
from memory_broker import Asked, MemoryBroker
from replica_pair import EPOCH, FETCH, FOLLOWER, LEADER, ReplicaPair
from storage_kit import NOW, make_batch, memory_store, read_batches


class LeaderPeer:
    """The connection to the leader: its handlers are called directly."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.is_lost = False
        self.bugs = 0
        self.requests: list[Message] = []

    async def request(self, message: Message, *, timeout_s: float) -> Message:
        self.requests.append(message)
        await asyncio.sleep(0.001)
        if self.bugs:
            self.bugs -= 1
            raise ValueError("planted")
        if self.is_lost:
            raise PeerDisconnectedError("lost")
        if isinstance(message, ListOffsetsRequest):
            return await _answer(self._broker.start(list_offsets, message, 6))
        assert isinstance(message, FetchRequest)
        return await _answer(self._broker.start(fetch, message, FETCH, sender=FOLLOWER))


async def _answer(asked: Asked[Message]) -> Message:
    await asked.sent()
    return asked.response()


class Copying:
    """A fetcher beside its leader."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.pair = ReplicaPair(broker)
        self.peer: LeaderPeer | None = LeaderPeer(broker)
        self.fetcher = ReplicaFetcher(
            FOLLOWER,
            LEADER,
            lambda: self.peer,
            lambda: EPOCH,
            broker.broker.checks,
            broker.broker.purgatory,
            broker.clock,
            broker.tasks,
        )

    @property
    def is_equal(self) -> bool:
        return read_batches(self.pair.follower.log) == read_batches(self.pair.leader.log)


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as broker:
        yield broker


@pytest.fixture
def copying(broker: MemoryBroker) -> Iterator[Copying]:
    copying = Copying(broker)
    yield copying
    copying.fetcher.stop()


def test_records_are_copied_as_they_come(copying: Copying, broker: MemoryBroker) -> None:
    copying.fetcher.add(copying.pair.follower)
    for _ in range(5):
        copying.pair.produce(acks=1)
        broker.pass_time(0.1)
        assert copying.is_equal, "a fetch that waits is answered with the record"
    assert copying.pair.leader.watermark.offset == 10


def test_copying_resumes_after_a_lost_connection(copying: Copying, broker: MemoryBroker) -> None:
    copying.fetcher.add(copying.pair.follower)
    broker.pass_time(0.1)
    assert copying.peer is not None
    copying.peer.is_lost = True
    broker.append("t", count=3)
    broker.pass_time(5)
    assert len(copying.peer.requests) < 60, "it pauses between its attempts"
    copying.peer.is_lost = False
    broker.pass_time(1)
    assert copying.is_equal


def test_copying_continues_after_a_bug(
    copying: Copying, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assert copying.peer is not None
    copying.peer.bugs = 3
    copying.fetcher.add(copying.pair.follower)
    broker.append("t", count=3)
    broker.pass_time(5)
    assert copying.peer.bugs == 0
    assert copying.is_equal
    assert caplog.text.count("copying from broker 1 failed") == 1


def test_a_bug_in_one_partition_lets_it_rest(
    copying: Copying, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    follower = copying.pair.follower
    broker.append("t", count=3)
    with pytest.MonkeyPatch.context() as bug:
        bug.setattr(type(follower.log), "append_coalesced_fetched", _bug)
        copying.fetcher.add(follower)
        broker.pass_time(3)
        assert follower.log.log_end_offset == 0
    broker.pass_time(3)
    assert copying.is_equal
    assert caplog.text.count("cannot copy it from broker 1") == 1
    assert "planted" in caplog.text


def _bug(*arguments: object) -> int:
    raise ValueError("planted")


def test_a_leader_that_is_not_registered_yet_is_waited_for(
    copying: Copying, broker: MemoryBroker
) -> None:
    peer = copying.peer
    assert peer is not None
    copying.peer = None
    copying.fetcher.add(copying.pair.follower)
    broker.append("t")
    broker.pass_time(1)
    assert not copying.is_equal
    copying.peer = peer
    broker.pass_time(1)
    first = peer.requests[0]
    assert isinstance(first, FetchRequest)
    assert first.topics, "a partition that is left out of a new session is never copied"
    assert copying.is_equal


def test_a_diverged_log_is_truncated_and_copied(copying: Copying, broker: MemoryBroker) -> None:
    copying.pair.diverge()
    broker.append("t", count=2)
    copying.fetcher.add(copying.pair.follower)
    broker.pass_time(1)
    assert copying.is_equal


def test_a_follower_that_is_elected_while_a_thread_replays_its_log_keeps_all_of_it(
    copying: Copying, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.pair.diverge()
    broker.append("t", count=2)
    follower = copying.pair.follower
    end, offload = follower.log.log_end_offset, broker.tasks.offload

    def elected(lane: str, work: Callable[[], object]) -> asyncio.Future[object]:
        if not follower.role.is_leader:
            role = Role(follower.leader_epoch + 1, FOLLOWER, True, (FOLLOWER,))
            follower.assume(role, broker.clock.monotonic_ms())
        return offload(lane, work)

    monkeypatch.setattr(broker.tasks, "offload", elected)
    copying.fetcher.add(follower)
    broker.pass_time(1)
    assert follower.role.is_leader, "the truncation needed a thread"
    assert follower.log.log_end_offset == end


def test_a_log_that_ends_before_its_leaders_start_is_begun_again(
    copying: Copying, broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        broker.append("t", count=2)
    copying.pair.change((LEADER,))
    copying.pair.leader.delete_records(4)
    copying.fetcher.add(copying.pair.follower)
    broker.pass_time(1)
    assert copying.is_equal
    assert copying.pair.follower.log.log_start_offset == 4


def test_no_request_is_sent_without_partitions(copying: Copying, broker: MemoryBroker) -> None:
    copying.fetcher.add(copying.pair.follower)
    broker.pass_time(0.1)
    copying.fetcher.remove(copying.pair.follower)
    broker.pass_time(2)
    assert copying.peer is not None
    count = len(copying.peer.requests)
    broker.pass_time(5)
    assert len(copying.peer.requests) == count
    copying.fetcher.add(copying.pair.follower)
    broker.append("t")
    broker.pass_time(1)
    assert copying.is_equal


def test_a_partition_with_an_error_does_not_stop_the_others(
    copying: Copying, broker: MemoryBroker
) -> None:
    other = copying.pair.another_topic()
    copying.pair.follower.take_offline("planted")
    copying.fetcher.add(copying.pair.follower)
    copying.fetcher.add(other)
    broker.append("t")
    broker.append("u", count=3)
    broker.pass_time(1)
    assert other.log.log_end_offset == 3


def test_stopping_ends_the_requests(copying: Copying, broker: MemoryBroker) -> None:
    copying.fetcher.add(copying.pair.follower)
    broker.pass_time(0.1)
    copying.fetcher.stop()
    broker.append("t")
    broker.pass_time(2)
    assert not copying.is_equal


def test_with_fsync_a_position_is_reported_after_the_flush(
    copying: Copying, broker: MemoryBroker
) -> None:
    leader, follower = copying.pair.leader, copying.pair.follower
    copying.fetcher.add(follower)
    follower.use_config(follower.log.config._replace(durability="fsync"))
    copying.pair.produce(acks=-1)
    broker.pass_time(1.5)
    assert copying.is_equal
    assert leader.watermark.offset == 0, "a power failure of both would lose the records"
    follower.log.flush()
    broker.broker.purgatory.check(follower.key)
    broker.pass_time(0.5)
    assert leader.watermark.offset == 2


def test_a_flush_wakes_the_next_fetch_at_once(copying: Copying, broker: MemoryBroker) -> None:
    leader, follower = copying.pair.leader, copying.pair.follower
    copying.fetcher.add(follower)
    follower.use_config(follower.log.config._replace(durability="fsync"))
    copying.pair.produce(acks=-1)
    broker.pass_time(0.02)
    follower.log.flush()
    broker.broker.purgatory.check(follower.key)
    broker.pass_time(0.02)
    assert leader.watermark.offset == 2


def test_partitions_that_need_no_flush_do_not_wait_for_the_flush_of_another(
    copying: Copying, broker: MemoryBroker
) -> None:
    leader, follower = copying.pair.leader, copying.pair.follower
    other = copying.pair.another_topic()
    follower.use_config(follower.log.config._replace(durability="fsync"))
    copying.fetcher.add(follower)
    copying.fetcher.add(other)
    copying.pair.produce(acks=-1)
    for number in range(1, 6):
        broker.append("u")
        broker.pass_time(0.03)
        assert other.log.log_end_offset == number
    assert leader.watermark.offset == 0
    assert copying.peer is not None
    assert len(copying.peer.requests) < 60, "the leader waits a little before an empty answer"
    follower.log.flush()
    broker.broker.purgatory.check(follower.key)
    broker.pass_time(0.03)
    assert leader.watermark.offset == 2
    asked = len(copying.peer.requests)
    broker.pass_time(1)
    assert len(copying.peer.requests) - asked < 5, "requests wait for records again"


class RecordedFetcher:
    """Keeps the partitions that it is to copy."""

    def __init__(self) -> None:
        self.partitions: set[Partition] = set()
        self.is_stopped = False

    def add(self, partition: Partition) -> None:
        self.partitions.add(partition)

    def remove(self, partition: Partition) -> None:
        self.partitions.remove(partition)

    def stop(self) -> None:
        self.is_stopped = True


class Followed:
    """The replication of a broker, its fetchers, and one partition."""

    def __init__(self) -> None:
        self.fetchers: dict[int, RecordedFetcher] = {}
        self.replication = ReplicaFetcherManager(self._make)  # type: ignore[arg-type]
        self.partition = Partition(memory_store().create(), follower_of(2), lambda partition: None)
        self.replication.note_role(self.partition)

    def _make(self, leader_id: int) -> RecordedFetcher:
        assert leader_id not in self.fetchers
        return self.fetchers.setdefault(leader_id, RecordedFetcher())

    def assume(self, role: Role) -> None:
        self.partition.assume(role, 0)
        self.replication.note_role(self.partition)

    @property
    def leaders(self) -> list[int]:
        """The leaders from which the partition is copied."""
        return [key for key, each in self.fetchers.items() if self.partition in each.partitions]


def follower_of(leader_id: int, epoch: int = 3) -> Role:
    return Role(epoch, leader_id, is_leader=False, isr=(leader_id,))


def test_a_partition_is_copied_from_its_present_leader() -> None:
    followed = Followed()
    assert followed.leaders == [2]
    followed.assume(follower_of(3, 4))
    assert followed.leaders == [3]
    followed.assume(follower_of(2, 5))
    assert followed.leaders == [2]


def test_a_leader_and_a_replica_without_a_leader_copy_nothing() -> None:
    followed = Followed()
    followed.assume(Role(4, 1, is_leader=True, isr=(1,)))
    assert followed.leaders == []
    followed.assume(follower_of(-1, 5))
    assert followed.leaders == []
    followed.assume(follower_of(2, 6))
    assert followed.leaders == [2]


def test_a_deleted_partition_is_not_copied() -> None:
    followed = Followed()
    followed.partition.retire()
    followed.replication.note_role(followed.partition)
    assert followed.leaders == []


def test_nothing_is_copied_after_the_stop() -> None:
    followed = Followed()
    followed.replication.stop()
    assert followed.fetchers[2].is_stopped
    followed.assume(follower_of(3, 4))
    assert followed.leaders == []


@pytest.fixture
def follower(broker: MemoryBroker) -> Partition:
    """With a copied batch that is not durable."""
    follower = ReplicaPair(broker).follower
    follower.use_config(follower.log.config._replace(durability="fsync"))
    epoch = follower.leader_epoch
    follower.assume(Role(epoch + 1, FOLLOWER, True, (FOLLOWER,)), 0)
    follower.append(make_batch(2), NOW)
    follower.assume(Role(epoch + 2, LEADER, False, (LEADER, FOLLOWER)), 0)
    return follower


class Waiting:
    def __init__(self, broker: MemoryBroker, follower: Partition, deadline: float = 60.0) -> None:
        self.broker, self.follower = broker, follower
        self.is_over = False
        self.task = broker.tasks.spawn(self._run(deadline + broker.clock.monotonic()), name="wait")
        broker.pass_time(0.01)

    async def _run(self, deadline: float) -> None:
        waiting = being_flushed([self.follower])
        if waiting:
            await flushed(waiting, self.broker.broker.purgatory, self.broker.tasks, deadline)
        self.is_over = True

    def check(self) -> bool:
        self.broker.broker.purgatory.check(self.follower.key)
        self.broker.pass_time(0.01)
        return self.is_over


def test_it_ends_with_the_flush(broker: MemoryBroker, follower: Partition) -> None:
    waiting = Waiting(broker, follower)
    assert not waiting.check()
    follower.log.flush()
    assert waiting.check()
    assert Waiting(broker, follower).is_over, "nothing is left to wait for"


def test_it_ends_at_the_deadline(broker: MemoryBroker, follower: Partition) -> None:
    waiting = Waiting(broker, follower, deadline=0.5)
    broker.pass_time(0.4)
    assert not waiting.check()
    broker.pass_time(0.2)
    assert waiting.check()
    assert not len(broker.broker.purgatory)


def test_a_log_that_fails_or_is_led_is_not_waited_for(
    broker: MemoryBroker, follower: Partition
) -> None:
    waiting = Waiting(broker, follower)
    follower.assume(Role(follower.leader_epoch + 1, FOLLOWER, True, (FOLLOWER,)), 0)
    assert waiting.check()
    follower.assume(Role(follower.leader_epoch + 1, LEADER, False, (LEADER,)), 0)
    waiting = Waiting(broker, follower)
    assert not waiting.is_over
    follower.take_offline("test")
    assert waiting.check()


def test_a_cancelled_wait_leaves_nothing_behind(broker: MemoryBroker, follower: Partition) -> None:
    waiting = Waiting(broker, follower)
    assert len(broker.broker.purgatory) == 1
    waiting.task.cancel()
    broker.pass_time(0.01)
    assert not len(broker.broker.purgatory)
