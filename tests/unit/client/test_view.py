from __future__ import annotations

import pytest

from lakelog.base.errors import AddressError, ErrorCode
from lakelog.client.view import ClusterView, parse_address, parse_bootstrap, shown
from lakelog.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=1, host="h", port=9)]
    return MetadataResponse(cluster_id="c", controller_id=1, brokers=brokers, topics=list(topics))


def topic(name: str, *leaders: int, error: int = 0) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=5)
        for index, leader in reversed(list(enumerate(leaders)))
    ]
    return MetadataResponseTopic(
        name=name, topic_id=b"x" * 16, partitions=partitions, error_code=error
    )


def test_partitions_are_in_order_and_leaders_found() -> None:
    view = ClusterView().after(response(topic("t", 1, -1, 2)), complete=True)
    assert [p.partition for p in view.topics["t"].partitions] == [0, 1, 2]
    leader = view.leader("t", 0)
    assert leader is not None
    assert leader.address == ("h", 9)
    for partition in (1, 2, 3, -1):
        assert view.leader("t", partition) is None
    assert view.leader("other", 0) is None
    assert (view.cluster_id, view.controller_id) == ("c", 1)


def test_a_partial_answer_keeps_the_other_topics() -> None:
    view = ClusterView().after(response(topic("a", 1), topic("b", 1)), complete=True)
    view = view.after(response(topic("b", 1, 1)), complete=False)
    assert {name: len(t.partitions) for name, t in view.topics.items()} == {"a": 1, "b": 2}


def test_a_topic_with_an_error_is_not_there_any_more() -> None:
    view = ClusterView().after(response(topic("a", 1)), complete=True)
    view = view.after(response(topic("a", error=3)), complete=False)
    assert "a" not in view.topics
    assert view.errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    view = view.after(response(topic("a", 1)), complete=False)
    assert (list(view.topics), view.errors) == (["a"], {})


def test_a_complete_response_removes_topics_that_it_lacks() -> None:
    view = ClusterView().after(response(topic("a", 1)), complete=True)
    assert view.after(response(), complete=True).topics == {}


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:65535,", [("a", 1), ("b", 65535)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text", ["", " , ", ":1", "a:b", "a:0", "a:65536", "::1", "a:-1", "a..b", "\udcff:1"]
)
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bootstrap(text)


@pytest.mark.parametrize("text", ["a:1", "127.0.0.1:9092", "[::1]:9093"])
def test_an_address_is_shown_as_it_is_given(text: str) -> None:
    assert shown(parse_address(text)) == text


@pytest.mark.parametrize("scheme", ["http", "PLAINTEXT", "zookeeper"])
def test_a_url_is_refused_with_the_address_in_it(scheme: str) -> None:
    with pytest.raises(AddressError, match=r"is a URL; an address is host:port, such as a:1$"):
        parse_bootstrap(f"b:2,{scheme}://a:1/")
