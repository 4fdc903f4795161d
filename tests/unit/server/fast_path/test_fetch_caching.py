"""Which Fetch requests a connection learns."""

from __future__ import annotations

import pytest

from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from lakelog.server.connections.cached_request import CachedRequest
from lakelog.server.fast_path.fetch import CachedFetch
from lakelog.server.fast_path.fetch_caching import cache_request
from memory_broker import MemoryBroker

VERSION = 18


def learned(
    broker: MemoryBroker, request: FetchRequest, version: int = VERSION
) -> CachedRequest | None:
    topic_id = broker.create("t")
    for topic in request.topics:
        topic.topic_id, topic.topic = topic_id, "t"
    context, received, _ = broker._receive(request, version)
    return cache_request(broker.broker, None, context, received)


def of_partitions(*numbers: int, replica: int = -1) -> FetchRequest:
    topic = FetchTopic(partitions=[FetchPartition(partition=number) for number in numbers])
    state = ReplicaState(replica_id=replica, replica_epoch=4 if replica >= 0 else -1)
    return FetchRequest(topics=[topic], replica_state=state)


def test_one_partition_of_a_consumer_and_of_a_follower() -> None:
    for replica in (-1, 2):
        with MemoryBroker() as broker:
            cached_request = learned(broker, of_partitions(0, replica=replica))
            assert isinstance(cached_request, CachedFetch)
            assert cached_request.key.replica_id == replica


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (of_partitions(0, 1), VERSION),
        (FetchRequest(topics=of_partitions(0).topics, replica_id=2), 12),
        (FetchRequest(topics=of_partitions(0).topics), 9),
        (
            FetchRequest(
                topics=of_partitions(0).topics,
                forgotten_topics_data=[ForgottenTopic(partitions=[1])],
            ),
            VERSION,
        ),
        (FetchRequest(session_id=7, session_epoch=1), VERSION),
    ],
    ids=["two partitions", "an old follower", "before zstd", "a forgotten one", "no session"],
)
def test_no_other_request_is_cached(request_: FetchRequest, version: int) -> None:
    with MemoryBroker() as broker:
        assert learned(broker, request_, version) is None
