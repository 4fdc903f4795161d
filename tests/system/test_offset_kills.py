"""Committed offsets over kills: while they expire, and before they are loaded again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from lakelog.base.errors import ErrorCode
from lakelog.protocol.groups import FindCoordinatorRequest
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from waiting import eventually
from wire_client import WireClient, create_topic

PARTITIONS = 40
_NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "offsets.topic.num.partitions": "3",
        "offsets.retention.check.interval.ms": "20",
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with WireClient(broker.bootstrap) as wire:
            create_topic(wire, "orders", PARTITIONS)
        yield broker


def commit(wire: WireClient, group: str, offset: int, *, retention_ms: int = -1) -> bool:
    """For every partition; with a retention of its own, which versions 2 to 4 can carry."""
    rows = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in range(PARTITIONS)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=rows)],
    )
    wire.call(FindCoordinatorRequest(key=group), 3)
    (topic,) = wire.call(request, 4).topics
    return {row.error_code for row in topic.partitions} == {0}


def offsets(wire: WireClient, group: str) -> list[int] | None:
    """Of every partition, -1 for none; nothing while the coordinator is not ready."""
    wire.call(FindCoordinatorRequest(key=group), 3)
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[*range(PARTITIONS)])]
    answer = wire.call(OffsetFetchRequest(group_id=group, topics=topics), 7)
    if answer.error_code in _NOT_READY:
        return None
    assert answer.error_code == 0
    (topic,) = answer.topics
    assert {row.error_code for row in topic.partitions} == {0}
    return [row.committed_offset for row in topic.partitions]


def state(broker: BrokerProcess, groups: list[str]) -> dict[str, list[int]]:
    with WireClient(broker.bootstrap) as wire:
        return {group: eventually(partial(offsets, wire, group)) for group in groups}


def test_kip_211_a_kill_while_offsets_expire(broker: BrokerProcess) -> None:
    """KoP #303: -1 is the broker's own retention. Expired offsets do not come back."""
    rng = random.Random(7)
    groups = [f"g{number}" for number in range(9)]
    with WireClient(broker.bootstrap) as wire:
        for number, group in enumerate(groups):
            retention_ms = -1 if number % 3 == 0 else 100 + 150 * number
            eventually(partial(commit, wire, group, 5, retention_ms=retention_ms))
    kept = groups[::3]
    gone: set[str] = set()
    for _ in range(4):
        broker.kill()
        broker.restart()
        time.sleep(rng.uniform(0.0, 0.2))  # the moment of the next kill
        found = state(broker, groups)
        for group, values in found.items():
            assert set(values) <= {5, -1}
            if group in kept:
                assert set(values) == {5}, group
            if group in gone:
                assert set(values) == {-1}, f"{group} came back"
        gone |= {group for group, values in found.items() if set(values) == {-1}}
    expected = {group: [5 if group in kept else -1] * PARTITIONS for group in groups}
    eventually(lambda: state(broker, groups) == expected)
    broker.kill()
    broker.restart()
    assert state(broker, groups) == expected


def test_offsets_are_not_returned_before_all_are_loaded(broker: BrokerProcess) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS (14), never -1, which would send a consumer to the start."""
    rounds = 200
    with WireClient(broker.bootstrap) as wire:
        eventually(lambda: commit(wire, "group", 0))
        for number in range(1, rounds):
            assert commit(wire, "group", number)
    broker.kill()
    broker.restart()
    with WireClient(broker.bootstrap) as wire:
        found = eventually(lambda: offsets(wire, "group"))
    assert set(found) == {rounds - 1}
