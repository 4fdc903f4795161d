"""A name that a request repeats is answered once or refused.

Otherwise small requests would have responses without bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fuzz.fed_broker import FedBroker
from lakelog.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from lakelog.protocol.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lakelog.protocol.groups import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)

TOPIC = "t"
TIMES = 1_000


def _metadata(times: int) -> Any:
    return MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * times)


def _configs(times: int) -> Any:
    one = DescribeConfigsResource(resource_type=2, resource_name=TOPIC)
    return DescribeConfigsRequest(resources=[one] * times)


def _producers(times: int) -> Any:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=TOPIC, partition_indexes=[0] * times)] * 2
    )


def _groups(times: int) -> Any:
    return DescribeGroupsRequest(groups=["g"] * times)


def _consumer_groups(times: int) -> Any:
    return ConsumerGroupDescribeRequest(group_ids=["g"] * times)


def _offsets(times: int) -> Any:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * times)


def _transactions(times: int) -> Any:
    return DescribeTransactionsRequest(transactional_ids=["x"] * times)


REQUESTS: dict[str, tuple[Callable[[int], Any], int, Callable[[Any], Any]]] = {
    "Metadata": (_metadata, 12, lambda found: found.topics),
    "DescribeConfigs": (_configs, 4, lambda found: found.results),
    "DescribeProducers": (
        _producers,
        0,
        lambda found: [entry for topic in found.topics for entry in topic.partitions],
    ),
    "DescribeGroups": (_groups, 5, lambda found: found.groups),
    "ConsumerGroupDescribe": (_consumer_groups, 0, lambda found: found.groups),
    "OffsetFetch": (_offsets, 8, lambda found: found.groups),
    "DescribeTransactions": (_transactions, 0, lambda found: found.transaction_states),
}


def _ask(folder: Path, message: Any, version: int) -> Any:
    async def scenario() -> Any:
        async with FedBroker(folder) as server:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            await server.open()[0].ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            return await server.open()[0].ask(message, version)

    return asyncio.run(scenario())


@pytest.mark.parametrize("api", REQUESTS)
def test_a_repetition_is_answered_once(tmp_path: Path, api: str) -> None:
    build, version, entries = REQUESTS[api]
    assert len(entries(_ask(tmp_path, build(TIMES), version))) == 1


def test_a_partition_is_looked_up_once(tmp_path: Path) -> None:
    """Looking up a time reads and may decompress a whole batch."""
    one = ListOffsetsTopic(
        name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=1)]
    )
    found = _ask(tmp_path, ListOffsetsRequest(topics=[one] * TIMES), 7)
    codes = {entry.error_code for topic in found.topics for entry in topic.partitions}
    assert codes == {42}, "as Apache Kafka says INVALID_REQUEST"
