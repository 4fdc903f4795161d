"""Logs follow the metadata image, on a disk in memory."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import AT_START, Failure
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.aio import AsyncioTasks
from lakelog.server.topics.durable_topics import DurableTopics
from lakelog.server.topics.log_manager import DeletedTopics, LogManager
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.preparation import wait_for
from storage_kit import NOW, ManualClock, make_batch

T = TypeVar("T")

DATA = Path("/data")
NODE = 1
ORDERS = b"o" * 16
PAYMENTS = b"p" * 16


class Node:
    """A broker's replicas over one disk; `restart` returns a new process over the disk."""

    def __init__(
        self,
        disk: MemoryDisk,
        image: MetadataImage,
        *,
        begins: bool = False,
        breaks: Callable[[MemoryDisk], None] = lambda disk: None,
    ) -> None:
        self.disk = disk
        self.image = image
        self.partitions = PartitionRegistry()
        self.shortages: list[OSError] = []
        self.failures: list[tuple[int, Failure | None]] = []
        self.revoked = 0
        self.directory = LogDirectory(DATA, disk, ManualClock(), SeededRandom(1))
        self.directory.open(None, NODE)
        config = BrokerConfig({})
        tasks: Any = self
        self.durable = DurableTopics(
            b"p" * 16, self.directory.ownership.durable_mark, self.partitions, tasks
        )
        self.replicas = LogManager(
            NODE,
            self.directory,
            self.partitions,
            lambda: config,
            lambda partition: None,
            lambda key: None,
            lambda key: None,
            lambda partition: None,
            ManualClock(),
            tasks,
            self._checkpointed,
            self.shortages.append,
            self._revoke,
            self.durable,
            lambda key, failure: self.failures.append((key[1], failure)),
        )
        if begins:
            asyncio.run(self.durable.begin(1, b"p" * 16))
        breaks(disk)
        asyncio.run(self.replicas.load(image))

    def _revoke(self) -> None:
        self.revoked += 1

    async def _checkpointed(self) -> bool:
        self.directory.write_checkpoints()
        return True

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(work())
        return done

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Only `DurableTopics` calls it, to try again."""
        self.later = callback

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None] | None:
        try:
            return asyncio.get_running_loop().create_task(work)
        except RuntimeError:
            asyncio.run(work)
            return None

    def apply(self, records: Iterable[Record], *, named: bool = True) -> DeletedTopics:
        return asyncio.run(self.follow(records, named=named))

    async def follow(self, records: Iterable[Record], *, named: bool = True) -> DeletedTopics:
        records = tuple(records)
        old, new = self.image, self.image.apply_all(records, self.image.end + 1)
        told = records if named else ()
        await self.replicas.prepare(old, new, told)
        self.image = new
        return await self.replicas.follow(old, new, told)

    def names(self) -> list[str]:
        return sorted(f"{entry.topic}-{entry.index}" for entry in self.partitions)

    def directories(self) -> list[str]:
        return [name for name in self.disk.list(DATA) if self.disk.is_dir(DATA / name)]

    def restart(self, *, clean: bool = True) -> Node:
        self.directory.close(clean=clean)
        return Node(self.disk, self.image)


def topic(name: str, topic_id: bytes, partitions: int, epoch: int = 0) -> list[Record]:
    rows: list[Record] = [TopicRecord(name, topic_id)]
    for index in range(partitions):
        rows.append(PartitionRecord(topic_id, index, (NODE,), (NODE,), NODE, epoch, 0))
    return rows


@pytest.fixture(params=[True, False], ids=["by records", "by comparison"])
def named(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def node() -> Node:
    return Node(MemoryDisk(ManualClock()), MetadataImage())


def test_a_topic_comes_and_goes(node: Node, named: bool) -> None:
    assert node.apply(topic("orders", ORDERS, 2), named=named) == []
    assert node.names() == ["orders-0", "orders-1"]
    assert node.directories() == ["orders-0", "orders-1"]
    partition = node.partitions.leader(ORDERS, 0)
    assert node.apply([TopicRemoved(ORDERS)], named=named) == [("orders", ORDERS)]
    assert node.names() == []
    assert all(name.endswith("-delete") for name in node.directories())
    with pytest.raises(KafkaError) as unknown:
        node.partitions.leader(ORDERS, 0)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(KafkaError) as gone:
        partition.append(make_batch(), NOW)
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_again_is_another(node: Node) -> None:
    node.apply(topic("orders", ORDERS, 1))
    node.partitions.leader("orders", 0).append(make_batch(3), NOW)
    node.apply([TopicRemoved(ORDERS), *topic("orders", PAYMENTS, 1)])
    assert node.partitions.leader("orders", 0).log.log_end_offset == 0
    assert node.partitions.leader("orders", 0).topic_id == PAYMENTS
    assert node.partitions.get(ORDERS, 0) is None


@pytest.mark.parametrize("at_once", [True, False])
def test_a_recreated_topic_is_not_compared_with_old_recovery_points(
    node: Node, at_once: bool
) -> None:
    node.apply(topic("orders", ORDERS, 1))
    old = node.partitions.leader("orders", 0)
    old.append(make_batch(3), NOW)
    old.log.flush()
    node.directory.write_checkpoints()
    again = topic("orders", PAYMENTS, 1)
    removed = [TopicRemoved(ORDERS)]
    if at_once:
        node.apply([*removed, *again])
    else:
        node.apply(removed)
        node.apply(again)
    killed = Node(_killed(node.disk), node.image)
    assert killed.directory.failed == {}
    assert killed.partitions.leader("orders", 0).log.log_end_offset == 0


def _killed(disk: MemoryDisk) -> MemoryDisk:
    disk.kill()
    return disk


def test_partitions_are_added(node: Node, named: bool) -> None:
    node.apply(topic("orders", ORDERS, 1), named=named)
    node.apply([PartitionRecord(ORDERS, 1, (NODE,), (NODE,), NODE, 0, 0)], named=named)
    assert node.names() == ["orders-0", "orders-1"]


def test_only_the_configured_topic_changes(node: Node, named: bool) -> None:
    node.apply([*topic("orders", ORDERS, 1), *topic("payments", PAYMENTS, 1)], named=named)
    node.apply([ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "5")], named=named)
    assert node.partitions.leader("orders", 0).log.config.retention_ms == 5
    assert node.partitions.leader("payments", 0).log.config.retention_ms > 5


def test_a_change_of_a_known_partition_revokes_cached_requests(
    node: Node,
) -> None:
    def revokes(*records: Record) -> bool:
        before = node.revoked
        node.apply(records)
        return node.revoked > before

    assert not revokes(*topic("orders", ORDERS, 2)), "no connection can have learned them yet"
    assert not revokes(*topic("payments", PAYMENTS, 1))
    assert revokes(ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "1"))
    assert revokes(PartitionRecord(ORDERS, 1, (NODE,), (NODE,), NODE, 3, 1)), "another leader epoch"
    assert not revokes(PartitionRecord(ORDERS, 1, (NODE,), (NODE,), NODE, 3, 2)), "the same one"
    assert revokes(TopicRemoved(ORDERS))
    before = node.revoked
    node.partitions.leader("payments", 0).take_offline("planted")
    assert node.revoked > before


def test_records_and_epochs_survive_a_restart(node: Node) -> None:
    node.apply(topic("orders", ORDERS, 1, epoch=4))
    node.partitions.leader("orders", 0).append(make_batch(3), NOW)
    node.image = node.image.apply_all(
        [PartitionRecord(ORDERS, 0, (NODE,), (NODE,), NODE, 5, 1)], node.image.end + 1
    )
    after = node.restart().partitions.leader("orders", 0)
    assert after.log.log_end_offset == 3
    assert after.leader_epoch == 5
    wait_for(lambda: after.append(make_batch(), NOW))
    assert after.log.leader_epochs.entries == [(4, 0), (5, 3)]


def test_a_crash_between_the_record_and_the_files_is_put_right(node: Node) -> None:
    node.image = node.image.apply_all(topic("orders", ORDERS, 2), 1)
    again = node.restart()
    assert again.names() == ["orders-0", "orders-1"]
    again.image = again.image.apply_all([TopicRemoved(ORDERS)], 2)
    last = again.restart()
    assert last.names() == []
    assert all("-stray" in name for name in last.directories())


def test_a_log_that_cannot_be_made_is_offline_and_the_others_serve(node: Node) -> None:
    node.disk.make_dirs(DATA / "orders-1")
    node.apply(topic("orders", ORDERS, 3))
    assert node.names() == ["orders-0", "orders-2"]
    with pytest.raises(KafkaError) as offline:
        node.partitions.leader("orders", 1)
    assert offline.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.failures == [(1, Failure(AT_START, is_offline=True))]
    assert node.partitions.offline_keys == {(ORDERS, 1)}
    node.apply([TopicRemoved(ORDERS)])
    assert node.partitions.offline_keys == frozenset()
    with pytest.raises(KafkaError) as unknown:
        node.partitions.leader("orders", 1)
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_directory_that_cannot_be_renamed_does_not_come_back_as_the_next_topic(
    node: Node,
) -> None:
    node.apply([*topic("orders", ORDERS, 2), *topic("payments", PAYMENTS, 1)])
    node.partitions.leader("orders", 0).append(make_batch(3), NOW)
    node.disk.remove_tree(DATA / "orders-0")
    assert node.apply([TopicRemoved(ORDERS)]) == [("orders", ORDERS)]
    assert node.names() == ["payments-0"]
    again = b"n" * 16
    node.apply(topic("orders", again, 2))
    assert node.names() == ["orders-0", "orders-1", "payments-0"]
    assert node.partitions.leader("orders", 0).topic_id == again
    assert node.partitions.leader("orders", 0).log.log_end_offset == 0


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_from_it(node: Node) -> None:
    node.apply([*topic("orders", ORDERS, 1), *topic("payments", PAYMENTS, 1)])
    for name in ("orders", "payments"):
        node.partitions.leader(name, 0).append(make_batch(3), NOW)
    node.disk.remove_tree(DATA / "orders-0")
    node.directory.close()
    assert node.partitions.leader("payments", 0).log.recovery_point == 3
    assert not node.disk.exists(DATA / ".kafka_cleanshutdown")


def test_others_are_served_while_many_logs_are_made_and_removed(node: Node) -> None:
    """Between a few of them the loop has a loop iteration; how often does not depend on the
    time."""

    async def iterations_during(change: Coroutine[Any, Any, object]) -> tuple[int, set[int]]:
        task = asyncio.ensure_future(change)
        iterations, seen = 0, set()
        while not task.done():
            seen.add(len(node.names()))
            await asyncio.sleep(0)
            iterations += 1
        await task
        return iterations, seen

    async def scenario() -> None:
        made, seen = await iterations_during(node.follow(topic("orders", ORDERS, 80)))
        assert made >= 10
        assert {8, 16, 24} <= seen
        assert len(node.names()) == 80
        removed, _ = await iterations_during(node.follow([TopicRemoved(ORDERS)]))
        assert removed >= 10
        assert node.names() == []

    asyncio.run(scenario())


def test_a_topic_is_made_before_it_is_seen_and_removed_after(node: Node, named: bool) -> None:
    image = node.image.apply_all(topic("orders", ORDERS, 2), 1)
    told = tuple(topic("orders", ORDERS, 2)) if named else ()
    asyncio.run(node.replicas.prepare(node.image, image, told))
    assert node.names() == ["orders-0", "orders-1"]
    gone = image.apply_all([TopicRemoved(ORDERS)], 2)
    told = (TopicRemoved(ORDERS),) if named else ()
    asyncio.run(node.replicas.prepare(image, gone, told))
    assert node.names() == ["orders-0", "orders-1"]
    assert asyncio.run(node.replicas.follow(image, gone, told)) == [("orders", ORDERS)]
    assert node.names() == []


def test_a_stop_leaves_missing_logs_to_the_next_start(node: Node) -> None:
    async def scenario() -> None:
        making = asyncio.ensure_future(node.follow(topic("orders", ORDERS, 40)))
        await asyncio.sleep(0)
        node.replicas.stop()
        await making

    asyncio.run(scenario())
    assert 0 < len(node.names()) < 40
    again = node.restart()
    assert len(again.names()) == 40
    assert again.directory.clean


def test_a_start_that_is_cancelled_ends_the_thread_that_loads() -> None:
    """And leaves the folder as clean as it was."""
    node = Node(MemoryDisk(ManualClock()), MetadataImage())
    node.apply(topic("orders", ORDERS, 3))
    for index in range(3):
        node.partitions.leader("orders", index).append(make_batch(2), NOW)
    node.directory.close()

    complaints: list[str] = []

    async def scenario() -> LogDirectory:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        directory = LogDirectory(DATA, node.disk, ManualClock(), SeededRandom(2))
        directory.open(None, NODE)
        in_thread, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(str(context)))

        def config() -> BrokerConfig:
            """Asked for before each log is loaded."""
            loop.call_soon_threadsafe(in_thread.set)
            assert go_on.wait(10)
            return BrokerConfig({})

        replicas = LogManager(
            NODE,
            directory,
            PartitionRegistry(),
            config,
            lambda partition: None,
            lambda key: None,
            lambda key: None,
            lambda partition: None,
            ManualClock(),
            tasks,
            node._checkpointed,
            node.shortages.append,
            node._revoke,
            DurableTopics(b"p" * 16, directory.ownership.durable_mark, PartitionRegistry(), tasks),
            lambda key, failure: None,
        )
        loading = asyncio.ensure_future(replicas.load(node.image))
        await in_thread.wait()
        loading.cancel()
        await asyncio.sleep(0)
        assert not loading.done(), "the thread is waited for"
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await loading
        tasks.close()
        del loading
        gc.collect()
        return directory

    interrupted = asyncio.run(scenario())
    assert complaints == []
    assert 0 < len(interrupted.logs) < 3
    interrupted.close(clean=interrupted.clean)
    again = Node(node.disk, node.image)
    assert again.directory.clean
    assert again.directory.recoveries == {}
    logs = [again.partitions.leader("orders", index).log for index in range(3)]
    assert [log.recovery_point for log in logs] == [2, 2, 2]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_log_that_lacks_space_waits_and_is_created_later(node: Node, code: int) -> None:
    node.disk.fail("name", code, suffix="orders-1/00000000000000000000.log")
    node.apply(topic("orders", ORDERS, 3))
    assert node.replicas.waits(ORDERS)
    assert [error.errno for error in node.shortages] == [code]
    assert node.directories() == ["orders-0", "orders-2"], "nothing half-made remains"
    with pytest.raises(KafkaError) as waiting:
        node.partitions.leader("orders", 1)
    assert waiting.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    asyncio.run(node.replicas.make_waiting(lambda: node.image))
    assert not node.replicas.waits(ORDERS)
    assert node.names() == ["orders-0", "orders-1", "orders-2"]
    assert node.partitions.offline() == []
    node.partitions.leader(ORDERS, 1).append(make_batch(), NOW)


def test_no_log_is_made_of_space_that_is_kept_for_what_frees_some(node: Node) -> None:
    node.directory.space_guard.rejects_writes = True
    node.apply(topic("orders", ORDERS, 2))
    assert node.directories() == []
    assert node.replicas.waits(ORDERS)
    node.directory.space_guard.rejects_writes = False
    asyncio.run(node.replicas.make_waiting(lambda: node.image))
    assert node.names() == ["orders-0", "orders-1"]


def test_what_still_lacks_space_waits_on(node: Node) -> None:
    node.disk.fail("name", errno.ENOSPC, suffix="orders-1/00000000000000000000.log", times=2)
    node.apply(topic("orders", ORDERS, 2))
    asyncio.run(node.replicas.make_waiting(lambda: node.image))
    assert node.replicas.waits(ORDERS)
    assert len(node.shortages) == 2
    asyncio.run(node.replicas.make_waiting(lambda: node.image))
    assert node.names() == ["orders-0", "orders-1"]


def test_a_topic_that_waits_may_be_deleted(node: Node) -> None:
    node.disk.fail("name", errno.ENOSPC, suffix="orders-0/00000000000000000000.log")
    node.apply(topic("orders", ORDERS, 1))
    node.apply([TopicRemoved(ORDERS)])
    assert not node.replicas.waits(ORDERS)
    asyncio.run(node.replicas.make_waiting(lambda: node.image))
    assert node.names() == node.directories() == []
    assert node.partitions.offline() == []


def test_a_shorter_isr_comes_with_the_settings_that_it_was_chosen_by(
    node: Node, named: bool
) -> None:
    """Otherwise the leader would commit alone for a moment, and an eligible replica could lead."""
    led = PartitionRecord(ORDERS, 0, (NODE, 2), (NODE, 2), NODE, 0, 0)
    node.apply([TopicRecord("orders", ORDERS), led], named=named)
    partition = node.partitions.leader(ORDERS, 0)
    partition.append(make_batch(), NOW)
    assert partition.watermark.offset == 0
    both = ConfigRecord(ResourceType.TOPIC, "orders", "min.insync.replicas", "2")
    alone = led._replace(isr=(NODE,), elr=(2,), partition_epoch=1)
    node.apply([both, alone], named=named)
    assert partition.role.isr == (NODE,)
    assert partition.watermark.offset == 0


@pytest.mark.parametrize("returns", [False, True], ids=["deposed", "deposed and elected again"])
def test_a_lower_minimum_commits_nothing_for_a_leader_that_it_deposes(
    node: Node, named: bool, returns: bool
) -> None:
    """The other leader, or the one in between, lacks the record."""
    minimum = partial(ConfigRecord, ResourceType.TOPIC, "orders", "min.insync.replicas")
    led = PartitionRecord(ORDERS, 0, (NODE, 2), (NODE,), NODE, 0, 0, (2,))
    node.apply([TopicRecord("orders", ORDERS), minimum("2"), led], named=named)
    partition = node.partitions.leader(ORDERS, 0)
    partition.append(make_batch(), NOW)
    assert partition.watermark.offset == 0
    deposed = led._replace(isr=(2,), elr=(), leader=2, leader_epoch=1, partition_epoch=1)
    back = deposed._replace(isr=(NODE, 2), leader=NODE, leader_epoch=2, partition_epoch=2)
    node.apply([minimum("1"), deposed, *([back] if returns else [])], named=named)
    assert partition.role.is_leader is returns
    assert partition.watermark.offset == 0
    assert partition.log.config.min_insync_replicas == 1


def _eligible(*states: tuple[tuple[int, ...], tuple[int, ...]]) -> list[Record]:
    """Return partitions with these ISRs and ELRs, led by broker 2 if it is in sync."""
    return [
        TopicRecord("orders", ORDERS),
        *(
            PartitionRecord(ORDERS, index, (NODE, 2), isr, 2 if 2 in isr else -1, 0, 0, elr)
            for index, (isr, elr) in enumerate(states)
        ),
    ]


def test_lost_are_the_missing_and_damaged_logs_of_eligible_replicas(node: Node) -> None:
    isr, elr, neither = ((NODE, 2), ()), ((), (NODE,)), ((2,), ())
    node.apply(_eligible(isr, elr, elr, elr, neither))
    assert node.replicas.lost == []
    for index in (0, 1, 4):
        node.disk.remove_tree(DATA / f"orders-{index}")
    damaged = node.disk.open(DATA / "orders-2" / f"{0:020}.log")
    damaged.write_at(0, b"\xff" * 100)
    damaged.close()
    node.directory.ownership.trust_page_cache()
    again = node.restart(clean=False)
    assert sorted((name, index) for name, _, index in again.replicas.lost) == [
        ("orders", 0),
        ("orders", 1),
        ("orders", 2),
    ]


def test_a_log_that_cannot_be_opened_is_reported_as_offline(node: Node) -> None:
    node.apply(topic("orders", ORDERS, 2))
    node.partitions.leader("orders", 1).append(make_batch(3), NOW)
    log = DATA / "orders-1" / f"{0:020}.log"
    known = node.restart()  # with a recovery point after these records
    node.disk.flip(log, 8 * 70)
    node.disk.set_modified_ms(log, 0)
    again = known.restart(clean=False)
    assert again.names() == ["orders-0"]
    assert again.failures == [(1, Failure(AT_START, is_offline=True))]
    assert again.partitions.offline_keys == {(ORDERS, 1)}


def _durability(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(ResourceType.TOPIC, name, "durability", value)


def _promised(node: Node) -> frozenset[bytes]:
    found = node.directory.ownership.durable_mark.find()
    return frozenset() if found is None else found.topic_ids


def test_topics_with_fsync_are_named_before_they_are_served(node: Node, named: bool) -> None:
    asyncio.run(node.durable.begin(-1, None))
    node.apply([*topic("orders", ORDERS, 2), _durability("orders", "fsync")], named=named)
    assert _promised(node) == {ORDERS}
    node.apply([*topic("payments", PAYMENTS, 1)], named=named)
    assert _promised(node) == {ORDERS}
    node.apply([_durability("orders", None)], named=named)
    assert _promised(node) == frozenset()


def test_a_deleted_topic_is_not_named_any_more(node: Node, named: bool) -> None:
    asyncio.run(node.durable.begin(-1, None))
    node.apply([*topic("orders", ORDERS, 1), _durability("orders", "fsync")], named=named)
    node.apply([TopicRemoved(ORDERS)], named=named)
    assert not node.durable.names(ORDERS)


def test_the_promise_ends_before_a_weaker_setting_applies(node: Node, named: bool) -> None:
    asyncio.run(node.durable.begin(-1, None))
    node.apply([*topic("orders", ORDERS, 1), _durability("orders", "fsync")], named=named)
    partition = node.partitions.get("orders", 0)
    assert partition is not None
    seen: list[tuple[str, frozenset[bytes]]] = []
    mark: Any = node.directory.ownership.durable_mark
    write = mark.write

    def recorded(*args: Any) -> None:
        write(*args)
        seen.append((partition.log.config.durability, _promised(node)))

    mark.write = recorded
    state = (0, (NODE,), (NODE,), NODE, 1, 1)
    node.apply([PartitionRecord(ORDERS, *state), _durability("orders", "page-cache")], named=named)
    assert partition.log.config.durability == "page-cache"
    assert seen == [("fsync", frozenset())]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_weaker_setting_waits_until_the_promise_can_end(node: Node, restarts: bool) -> None:
    asyncio.run(node.durable.begin(-1, None))
    node.apply([*topic("orders", ORDERS, 1), _durability("orders", "fsync")])
    if restarts:
        node.image = node.image.apply(_durability("orders", "page-cache"))
        directory = node.directory
        directory.close(clean=True)
        node = Node(node.disk, node.image, begins=True, breaks=_break_mark)
    else:
        _break_mark(node.disk)
        node.apply([_durability("orders", "page-cache")])
    node.apply([PartitionRecord(ORDERS, 1, (NODE,), (NODE,), NODE, 0, 0)])
    found = [node.partitions.leader("orders", index) for index in (0, 1)]
    assert [each.log.config.durability for each in found] == ["fsync", "fsync"]
    assert _promised(node) == {ORDERS}
    node.disk.forget_faults()
    revoked = node.revoked
    node.later()
    assert not _promised(node)
    assert [each.log.config.durability for each in found] == ["page-cache", "page-cache"]
    assert node.revoked > revoked


def _break_mark(disk: MemoryDisk) -> None:
    disk.fail("write", errno.EIO, suffix="durable-topics.tmp", times=100)
    disk.fail("name", errno.EIO, suffix="durable-topics", times=100)


def test_new_topics_of_one_change_are_named_by_one_write(node: Node) -> None:
    asyncio.run(node.durable.begin(-1, None))
    mark: Any = node.directory.ownership.durable_mark
    durable = [_durability(name, "fsync") for name in ("orders", "payments")]
    with mock.patch.object(mark, "write", wraps=mark.write) as writing:
        node.apply([*topic("orders", ORDERS, 2), *topic("payments", PAYMENTS, 1), *durable])
    assert writing.call_count == 1
    assert _promised(node) == {ORDERS, PAYMENTS}


def test_a_start_names_all_topics_with_fsync(node: Node) -> None:
    node.apply([*topic("orders", ORDERS, 2), _durability("orders", "fsync")])
    node.apply([*topic("payments", PAYMENTS, 1)])
    assert _promised(node) == frozenset(), "a broker that is alone"
    asyncio.run(node.durable.begin(-1, None))
    node.directory.close()
    node.directory.open(None, NODE)
    asyncio.run(node.replicas.load(node.image))
    assert _promised(node) == {ORDERS}


def test_after_a_power_failure_a_torn_end_is_no_loss_of_a_durable_topic(node: Node) -> None:
    """A log that is missing is one."""
    state = PartitionRecord(ORDERS, 0, (NODE, 2), (NODE,), NODE, 0, 0)
    node.apply([TopicRecord("orders", ORDERS), state, _durability("orders", "fsync")])
    partition = node.partitions.get("orders", 0)
    assert partition is not None
    partition.append(make_batch(2), NOW)
    partition.log.flush()
    partition.append(make_batch(200), NOW)
    node.disk.crash(SeededRandom(3))
    again = Node(node.disk, node.image)
    assert not again.directory.keeps_page_cache
    assert again.replicas.lost == []
    node.disk.crash()
    node.disk.remove_tree(DATA / "orders-0")
    assert [(name, index) for name, _, index in Node(node.disk, node.image).replicas.lost] == [
        ("orders", 0)
    ]


@pytest.mark.parametrize("end", [MemoryDisk.kill, MemoryDisk.crash])
def test_a_log_of_a_durable_topic_that_was_replaced_is_lost(
    node: Node, end: Callable[[MemoryDisk], None]
) -> None:
    """It is whole, and reaches its high watermark on the disk."""
    asyncio.run(node.durable.begin(-1, None))
    state = PartitionRecord(ORDERS, 0, (NODE, 2), (NODE,), NODE, 0, 0)
    node.apply([TopicRecord("orders", ORDERS), state, _durability("orders", "fsync")])
    node.directory.write_checkpoints()
    node.directory.ownership.trust_page_cache()
    end(node.disk)
    folder = DATA / "orders-0"
    copy = {path: node.disk.content(path) for path in node.disk.files() if path.parent == folder}
    node.disk.remove_tree(folder)
    node.disk.make_dirs(folder)
    for path, content in copy.items():
        node.disk.write_atomic(path, content)
    again = Node(node.disk, node.image, begins=True)
    assert [(name, index) for name, _, index in again.replicas.lost] == [("orders", 0)]


def test_a_topic_that_becomes_durable_as_it_grows_waits_for_its_flush(
    node: Node, named: bool
) -> None:
    """Its partition has records that were appended under the weaker setting."""
    asyncio.run(node.durable.begin(-1, None))
    node.apply(topic("orders", ORDERS, 1), named=named)
    grown = PartitionRecord(ORDERS, 1, (NODE,), (NODE,), NODE, 0, 0)
    written: list[frozenset[bytes]] = []
    add = node.durable.add

    async def recorded(topic_ids: Iterable[bytes]) -> None:
        written.append(frozenset(topic_ids))
        await add(written[-1])

    node.durable.add = recorded  # type: ignore[method-assign]
    node.apply([grown, _durability("orders", "fsync")], named=named)
    assert frozenset({ORDERS}) not in written
