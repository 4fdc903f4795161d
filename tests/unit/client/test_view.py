from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.client.view import ClusterView
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
