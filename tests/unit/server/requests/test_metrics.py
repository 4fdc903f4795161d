from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from lakelog.protocol.api import Api
from lakelog.protocol.groups import HeartbeatResponse
from lakelog.protocol.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lakelog.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from lakelog.protocol.registry import APIS
from lakelog.protocol.topics import CreatableTopicResult, CreateTopicsResponse
from lakelog.server.log_limits import LINES_MAX
from lakelog.server.requests.metrics import (
    CLIENT_ID_CHARS_MAX,
    RequestMetrics,
    RequestNote,
    codes_in,
)
from storage_kit import ManualClock

FETCH, METADATA, CREATE_TOPICS = APIS[1], APIS[3], APIS[19]
PEER = "127.0.0.1:1"


class Asked(NamedTuple):
    version: int = 5
    client_id: str = "me\n2"


@pytest.fixture
def requests() -> RequestMetrics:
    return RequestMetrics(ManualClock())


def _answer_all(requests: RequestMetrics, duration_s: float) -> None:
    """As the dispatcher does it."""
    for api in (FETCH, METADATA):
        if duration_s > requests.noteworthy_s:
            requests.on_noteworthy(api, Asked(), PEER, duration_s, 30)
        requests.on_late(_waited(requests, api, duration_s))


def _waited(requests: RequestMetrics, api: Api, duration_s: float) -> Any:
    """Return the context of a request that was answered late."""
    return SimpleNamespace(
        **Asked()._asdict(),
        api=api,
        begun=requests.monotonic() - duration_s,
        connection=SimpleNamespace(session=SimpleNamespace(peer_name=PEER)),
        size_bytes=30,
    )


def test_slow_requests_are_logged_but_not_those_meant_to_wait(
    requests: RequestMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    requests.log_slower_than(500)
    _answer_all(requests, 0.4)
    assert not caplog.records
    _answer_all(requests, 0.6)
    assert [record.getMessage() for record in caplog.records] == [
        "slow request: Fetch v5 took 600 ms, 30 bytes, from me\\n2 (127.0.0.1:1)",
        "slow request: Metadata v5 took 600 ms, 30 bytes, from me\\n2 (127.0.0.1:1)",
        "slow request: Metadata v5 took 600 ms, 30 bytes, from me\\n2 (127.0.0.1:1)",
    ]


def test_a_negative_threshold_logs_none(
    requests: RequestMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    requests.log_slower_than(-1)
    _answer_all(requests, 1e9)
    assert not caplog.records


def test_a_crowd_of_slow_requests_has_few_lines(
    requests: RequestMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    requests.log_slower_than(0)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            _answer_all(requests, 1.0)
    assert len(caplog.records) == LINES_MAX


def test_of_a_long_client_id_the_beginning_is_shown(
    requests: RequestMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[RequestNote] = []
    requests.watch(seen.append)
    requests.log_slower_than(0)
    requests.on_noteworthy(METADATA, Asked(client_id="c" * 32_767), PEER, 1.0, 32_800)
    assert seen[0].client_id == "c" * CLIENT_ID_CHARS_MAX
    (record,) = caplog.records
    assert len(record.getMessage()) < 400


def test_a_watcher_sees_every_request_until_it_leaves(requests: RequestMetrics) -> None:
    seen: list[RequestNote] = []
    _answer_all(requests, 0.0)
    leave = requests.watch(seen.append)
    _answer_all(requests, 0.0)
    assert [note.api for note in seen] == ["Fetch", "Fetch", "Metadata", "Metadata"]
    assert seen[0] == RequestNote("Fetch", 5, "me\n2", PEER, 0.0, 30)
    leave()
    leave()
    _answer_all(requests, 0.0)
    assert len(seen) == 4


def test_the_longest_request_counts_only_time_that_blocked_the_loop(
    requests: RequestMetrics,
) -> None:
    requests.on_late(_waited(requests, FETCH, 30.0))
    requests.durations(FETCH).note(0.002)
    assert requests.fold() == 0.002
    ((name, parts),) = requests.seen()
    assert (name, sum(part.count for part in parts)) == ("Fetch", 2)


def test_errors_are_counted_at_every_depth(requests: RequestMetrics) -> None:
    partitions = [MetadataResponsePartition(error_code=code) for code in (0, 5, 5)]
    topics = [
        MetadataResponseTopic(name="a", error_code=3),
        MetadataResponseTopic(name="b", partitions=partitions),
    ]
    requests.count_errors(METADATA, MetadataResponse(topics=topics))
    created = CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=36)])
    requests.count_errors(CREATE_TOPICS, created)
    assert requests.errors == {
        ("Metadata", 3): 1,
        ("Metadata", 5): 2,
        ("CreateTopics", 36): 1,
    }


def test_codes_are_found_at_any_depth_and_zeros_are_not() -> None:
    assert list(codes_in(HeartbeatResponse(error_code=27))) == [27]
    assert not list(codes_in(HeartbeatResponse()))
    results = [PartitionProduceResponse(index=index, error_code=index) for index in range(4)]
    topic = TopicProduceResponse(name="orders", partition_responses=results)
    assert sorted(codes_in(ProduceResponse(responses=[topic, topic]))) == [1, 1, 2, 2, 3, 3]
