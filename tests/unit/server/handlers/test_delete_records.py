from __future__ import annotations

import errno
import logging

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lakelog.server.handlers.delete_records import handle
from memory_broker import MemoryBroker

E = ErrorCode


def ask(
    world: MemoryBroker, *offsets: int, topic: str = "orders", first: int = 0
) -> list[DeleteRecordsPartitionResult]:
    entries = [
        DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in enumerate(offsets, first)
    ]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=entries)])
    return world.ask(handle, request, 2).topics[0].partitions


@pytest.fixture
def filled(world: MemoryBroker) -> MemoryBroker:
    """`orders` with two partitions of five records."""
    world.create("orders", 2)
    for index in range(2):
        world.append("orders", index, count=5)
    return world


def test_each_partition_begins_at_its_offset(filled: MemoryBroker) -> None:
    assert [(each.error_code, each.low_watermark) for each in ask(filled, 2, -1)] == [
        (0, 2),
        (0, 5),
    ]
    assert filled.partition("orders", 1).log.log_start_offset == 5


def test_a_start_offset_never_falls(filled: MemoryBroker) -> None:
    ask(filled, 3)
    assert [each.low_watermark for each in ask(filled, 1)] == [3]


@pytest.mark.parametrize(
    ("offset", "code"), [(6, E.OFFSET_OUT_OF_RANGE), (-2, E.OFFSET_OUT_OF_RANGE)]
)
def test_an_offset_beyond_the_log_deletes_nothing_there(
    filled: MemoryBroker, offset: int, code: ErrorCode
) -> None:
    bad, good = ask(filled, offset, 2)
    assert (bad.error_code, bad.low_watermark) == (code, -1)
    assert (good.error_code, good.low_watermark) == (E.NONE, 2)
    assert filled.partition("orders").log.log_start_offset == 0


def test_only_records_of_existing_topics_of_clients_are_deleted(filled: MemoryBroker) -> None:
    filled.run(filled.broker.topics.ensure_group_topic())
    filled.create("keys", 1, cleanup_policy="compact")
    codes = {
        topic: ask(filled, -1, topic=topic, first=first)[0].error_code
        for topic, first in [("gone", 0), ("orders", 9), ("__consumer_offsets", 0), ("keys", 0)]
    }
    assert codes == {
        "gone": E.UNKNOWN_TOPIC_OR_PARTITION,
        "orders": E.UNKNOWN_TOPIC_OR_PARTITION,
        "__consumer_offsets": E.INVALID_TOPIC_EXCEPTION,
        "keys": E.POLICY_VIOLATION,
    }


def test_a_deletion_that_is_not_durable_is_an_error_until_it_is(
    filled: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """After a kill the records would be there again."""
    caplog.set_level(logging.INFO, "lakelog")
    filled.disk.fail("write", errno.EIO)
    (result,) = ask(filled, 2)
    assert (result.error_code, result.low_watermark) == (E.KAFKA_STORAGE_ERROR, -1)
    assert "records_deleted" not in _events(caplog)
    filled.disk.forget_faults()
    (result,) = ask(filled, 2)
    assert (result.error_code, result.low_watermark) == (E.NONE, 2)
    assert "records_deleted" in _events(caplog)
    assert not filled.broker.noted_starts


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(getattr(record, "event", "")) for record in caplog.records]


def test_records_without_an_archive_need_force(world: MemoryBroker) -> None:
    world.create("orders", 1, table_enable="true")
    world.append("orders", 0, count=5)
    (refused,) = ask(world, 3)
    assert refused.error_code == E.POLICY_VIOLATION

    topics = [
        DeleteRecordsTopic(
            name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)]
        )
    ]
    request = DeleteRecordsRequest(topics=topics, force=True)
    answer = world.ask(handle, request, 2)
    assert [each.low_watermark for each in answer.topics[0].partitions] == [3]
