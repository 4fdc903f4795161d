"""The promise for topics with `durability=fsync`, and its end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from lakelog.replica.partition import Partition
from lakelog.server.controller.membership import KeptTopics
from lakelog.server.topics.durable_topics import DurableTopics
from lakelog.storage.marks import DurableMark
from memory_broker import MemoryBroker

FORMER, OWN, NEXT = b"f" * 16, b"o" * 16, b"n" * 16
ORDERS, PAYMENTS = b"r" * 16, b"p" * 16


class Folder:
    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.mark = broker._server._folder.directory.ownership.durable_mark
        self.topics = self.of(OWN)

    def of(self, process: bytes) -> DurableTopics:
        return DurableTopics(process, self.mark, self.broker.broker.partitions, self.broker.tasks)

    def begin(self, process: bytes, last: bytes | None, epoch: int = 7) -> KeptTopics:
        self.topics = self.of(process)
        return self.broker.run(self.topics.begin(epoch, last))

    def named(self) -> set[bytes] | None:
        found = self.mark.find()
        return None if found is None else set(found.topic_ids)


@pytest.fixture
def folder() -> Iterator[Folder]:
    with MemoryBroker() as broker:
        folder = Folder(broker)
        folder.begin(OWN, None)
        broker.run(folder.topics.restart([ORDERS, PAYMENTS]))
        yield folder


def test_the_next_process_keeps_the_topics(folder: Folder) -> None:
    assert folder.begin(NEXT, OWN) == KeptTopics(7, (PAYMENTS, ORDERS))


def test_a_process_that_ended_while_it_started_breaks_no_promise(folder: Folder) -> None:
    folder.begin(NEXT, OWN)
    assert folder.begin(b"l" * 16, NEXT).topic_ids, "it had registered"
    assert folder.begin(b"m" * 16, NEXT).topic_ids, "the one after it had not"


def test_another_process_with_another_folder_ends_the_promise(folder: Folder) -> None:
    assert folder.begin(NEXT, FORMER) == KeptTopics()
    assert folder.named() is None
    assert folder.begin(b"l" * 16, NEXT) == KeptTopics()


def test_a_broker_that_is_alone_has_no_file(folder: Folder) -> None:
    folder.mark.remove()
    topics = folder.of(OWN)
    folder.broker.run(topics.restart([ORDERS]))
    folder.broker.run(topics.add([ORDERS]))
    topics.await_flush(ORDERS)
    assert not topics.names(ORDERS)
    assert folder.named() is None


def test_new_topics_are_added_and_weaker_ones_removed(folder: Folder) -> None:
    run, topics = folder.broker.run, folder.topics
    run(topics.remove([ORDERS]))
    assert folder.named() == {PAYMENTS}
    run(topics.add([ORDERS]))
    assert folder.named() == {PAYMENTS, ORDERS}
    assert topics.names(ORDERS)


def test_deleted_topics_are_left_out_of_the_next_write(folder: Folder) -> None:
    folder.topics.forget([ORDERS])
    assert folder.named() == {ORDERS, PAYMENTS}
    folder.broker.run(folder.topics.add([b"a" * 16]))
    assert folder.named() == {b"a" * 16, PAYMENTS}


def test_after_a_change_to_fsync_a_topic_waits_for_its_flush(folder: Folder) -> None:
    broker, topics = folder.broker, folder.topics
    topic_id = broker.create("t")
    broker.append("t")
    partition: Partition = broker.partition("t")
    partition._flush_soon = lambda partition: None
    partition.use_config(partition.log.config._replace(durability="fsync"))
    topics.await_flush(topic_id)
    broker.pass_time(2.5)
    assert folder.named() == {PAYMENTS, ORDERS}
    partition.log.flush()
    broker.pass_time(2.5)
    assert folder.named() == {PAYMENTS, ORDERS, topic_id}


def test_a_topic_that_changes_back_is_not_awaited(folder: Folder) -> None:
    broker, topics = folder.broker, folder.topics
    topic_id = broker.create("t")
    topics.await_flush(topic_id)
    broker.run(topics.remove([topic_id]))
    broker.pass_time(2.5)
    assert folder.named() == {PAYMENTS, ORDERS}


def test_a_file_that_cannot_be_written_is_removed(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    disk = folder.broker.disk
    disk.fail("write", errno.ENOSPC, suffix="durable-topics.tmp")
    folder.broker.run(folder.topics.remove([ORDERS]))
    assert folder.named() is None
    assert not folder.topics.names(PAYMENTS)
    assert [record.event for record in caplog.records] == ["durable_topics_ignored"]  # type: ignore[attr-defined]


def test_a_file_that_cannot_be_removed_either_is_reported(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    disk = folder.broker.disk
    disk.fail("write", errno.EIO, suffix="durable-topics.tmp")
    disk.fail("name", errno.EIO, suffix="durable-topics", times=100)
    broker, topics, free = folder.broker, folder.topics, list[set[bytes]]()
    topics.watch_withdrawn(free.append)
    broker.run(topics.remove([ORDERS]))
    assert caplog.records[-1].event == "durable_topics_not_removed"  # type: ignore[attr-defined]
    assert topics.is_bound(ORDERS), "a weaker setting may not apply yet"
    said = len(caplog.records)
    broker.pass_time(3)
    assert topics.is_bound(ORDERS) and not free
    assert len(caplog.records) == said, "it is said once"
    disk.forget_faults()
    broker.pass_time(2)
    assert folder.named() is None
    assert free == [{ORDERS, PAYMENTS}]
    assert not topics.is_bound(ORDERS)


def test_new_topics_of_one_change_are_written_at_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = list[int](), DurableMark.write

    def counting(self: DurableMark, processes: Any, topic_ids: Any) -> None:
        written.append(len(topic_ids))
        write(self, processes, topic_ids)

    monkeypatch.setattr(DurableMark, "write", counting)
    folder.broker.run(folder.topics.add(bytes([number]) * 16 for number in range(50)))
    folder.broker.run(folder.topics.add([ORDERS]))
    assert written == [52]


def test_a_file_of_an_earlier_process_that_cannot_be_removed_is_reported(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.broker.disk.fail("name", errno.EIO, suffix="durable-topics", times=100)
    folder.begin(NEXT, FORMER)
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert "durable_topics_not_removed" in events
