"""Requests for `__consumer_offsets` itself must not lose committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterator
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
from lakelog.protocol.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, produce

OFFSETS = "__consumer_offsets"
GROUPS = [f"group-{number}" for number in range(5)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"offsets.topic.num.partitions": "7"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with WireClient(broker.bootstrap) as wire:
            create_topic(wire, "orders")
            for number, group in enumerate(GROUPS):
                commit(wire, group, number)
        yield broker


def commit(wire: WireClient, group: str, offset: int) -> None:
    """Looks for the coordinator first, which makes the topic, as every client does."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )

    def done() -> bool:
        assert wire.call(FindCoordinatorRequest(key=group), 3).error_code == 0
        (answer,) = wire.call(request, 8).topics
        return bool(answer.partitions[0].error_code == 0)

    eventually(done, what=f"a commit of {group}")


def committed(wire: WireClient) -> list[int]:
    """Each group's offset, -1 for none."""
    topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    found = []
    for group in GROUPS:
        response = wire.call(OffsetFetchRequest(group_id=group, topics=topics), 7)
        assert response.error_code == 0
        found.append(response.topics[0].partitions[0].committed_offset)
    return found


def test_another_number_of_partitions_in_the_settings_hides_no_group(
    broker: BrokerProcess,
) -> None:
    broker.stop()
    broker.settings["offsets.topic.num.partitions"] = "50"
    broker.start()
    with WireClient(broker.bootstrap) as wire:
        assert committed(wire) == [0, 1, 2, 3, 4]


def test_an_offset_may_be_kept_until_the_end_of_time(broker: BrokerProcess) -> None:
    """The sum of the current time and the longest retention overflows the field of the record."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=70)
    request = OffsetCommitRequest(
        group_id=GROUPS[0],
        retention_time_ms=(1 << 63) - 1,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
    )
    with WireClient(broker.bootstrap) as wire:
        (answer,) = wire.call(request, 4).topics
        assert answer.partitions[0].error_code == 0
        commit(wire, GROUPS[0], 71)
        (answer,) = wire.call(request, 4).topics
        assert answer.partitions[0].error_code == 0
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap) as wire:
        assert committed(wire) == [70, 1, 2, 3, 4]


def test_clients_cannot_write_to_it(broker: BrokerProcess) -> None:
    with WireClient(broker.bootstrap) as wire:
        answer = produce(wire, OFFSETS, batch_of(b"no record of a group"))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_its_partitions_cannot_be_added_to(broker: BrokerProcess) -> None:
    """A group would be looked for in another partition than its offsets are in."""
    topics = [CreatePartitionsTopic(name=OFFSETS, count=11)]
    with WireClient(broker.bootstrap) as wire:
        request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000)
        (refused,) = wire.call(request, 3).results
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "keeps its 7 partitions" in refused.error_message
        assert committed(wire) == [0, 1, 2, 3, 4]


def test_a_client_may_make_it_with_another_number_of_partitions(tmp_path: Path) -> None:
    """Settings absent from the request are the configured ones, so retention loses no offsets."""
    with BrokerProcess(tmp_path / "data") as broker:
        with WireClient(broker.bootstrap) as wire:
            topic = CreatableTopic(name=OFFSETS, num_partitions=3, replication_factor=-1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            (created,) = wire.call(request, 7).topics
            assert (created.error_code, created.num_partitions) == (0, 3)
            configs = {config.name: config.value for config in created.configs}
            assert configs["cleanup.policy"] == "compact"
            create_topic(wire, "orders")
            for number, group in enumerate(GROUPS):
                commit(wire, group, number)
        broker.kill()
        broker.start()
        with WireClient(broker.bootstrap) as wire:
            assert committed(wire) == [0, 1, 2, 3, 4]


def test_offsets_after_the_deletion_of_the_topic_equal_those_after_a_restart(
    broker: BrokerProcess,
) -> None:
    with WireClient(broker.bootstrap) as wire:
        request = DeleteTopicsRequest(topic_names=[OFFSETS], timeout_ms=10_000)
        assert wire.call(request, 4).responses[0].error_code == 0
        commit(wire, GROUPS[0], 70)
        eventually(lambda: _loaded(wire), what="every group to be loaded again")
        assert committed(wire) == [70, -1, -1, -1, -1]
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap) as wire:
        assert committed(wire) == [70, -1, -1, -1, -1]


def _loaded(wire: WireClient) -> bool:
    return all(
        wire.call(OffsetFetchRequest(group_id=group, topics=[]), 7).error_code == 0
        for group in GROUPS
    )
