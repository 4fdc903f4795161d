"""Verdicts of administrators about deleted records, settings and topics."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from lakelog.protocol.produce import ProduceRequest
from lakelog.protocol.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from scripted_clients import Answer, listed, produced, scripted_world
from simulator.checkers.laws import Law
from simulator.clients.administrator import TopicMaker, Trimmer

PLACE = ("topic", 0)


def trimmed(start: int, code: int = 0) -> DeleteRecordsResponse:
    part = DeleteRecordsPartitionResult(partition_index=0, low_watermark=start, error_code=code)
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="topic", partitions=[part])])


def altered(code: int = 0) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(error_code=code, resource_name="topic")]
    )


def described(**configs: str) -> DescribeConfigsResponse:
    entries = [
        DescribeConfigsResourceResult(name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_name="topic", configs=entries)]
    )


def deleted(code: int = 0) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[DeletableTopicResult(name="topic", error_code=code)])


@pytest.mark.parametrize(
    ("answer", "broken"),
    [
        (trimmed(50), set()),
        (trimmed(-1), {Law.TRIMMED}),
        (trimmed(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), set()),
        (trimmed(0, ErrorCode.OFFSET_OUT_OF_RANGE), {Law.ANSWERS}),
        (None, set()),
    ],
)
def test_deleted_records(answer: Answer, broken: set[Law]) -> None:
    with scripted_world() as world:
        client = Trimmer(world.context, "trimmer", [PLACE])
        world.answer(client, listed(0, 50), (DeleteRecordsRequest, answer))
        world.play(client._trim(PLACE))
        assert world.findings.broken == broken


@pytest.mark.parametrize(
    ("answers", "broken"),
    [
        ([altered()], {Law.CONFIG_KEPT}),
        ([None], set()),
        ([altered(ErrorCode.REQUEST_TIMED_OUT)], set()),
        ([altered(ErrorCode.INVALID_CONFIG)], {Law.ANSWERS}),
    ],
)
def test_only_an_acknowledged_setting_must_stay(answers: list[Answer], broken: set[Law]) -> None:
    with scripted_world() as world:
        client = Trimmer(world.context, "trimmer", [PLACE])
        world.answer(
            client,
            *((IncrementalAlterConfigsRequest, answer) for answer in answers),
            (DescribeConfigsRequest, described(flush_ms="1")),
        )
        world.play(client._configure("topic"))
        world.play(client._describe("topic"))
        assert world.findings.broken == broken


def test_a_setting_that_stayed() -> None:
    with scripted_world() as world:
        client = Trimmer(world.context, "trimmer", [PLACE])
        client._made = {"flush.ms": "500"}
        world.answer(client, (DescribeConfigsRequest, described(flush_ms="500")))
        world.play(client._describe("topic"))
        assert not world.findings.violations


def test_a_lost_change_makes_an_acknowledged_setting_unsure() -> None:
    with scripted_world() as world:
        client = Trimmer(world.context, "trimmer", [PLACE])
        client._made = {"flush.ms": "500"}
        world.answer(
            client,
            (IncrementalAlterConfigsRequest, None),
            (DescribeConfigsRequest, described(flush_ms="60000")),
        )
        for _ in range(50):  # each changes one of five settings
            world.play(client._configure("topic"))
        world.play(client._describe("topic"))
        assert not world.findings.violations


@pytest.mark.parametrize("may_be_deleted", [False, True])
def test_a_topic_exists_until_it_is_deleted(may_be_deleted: bool) -> None:
    with scripted_world() as world:
        client = TopicMaker(world.context, "shortlived")
        client._may_be_deleted = may_be_deleted
        answer = produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        world.answer(client, (ProduceRequest, answer))
        world.play(client._use(PLACE))
        assert world.findings.broken == (set() if may_be_deleted else {Law.TOPIC_KEPT})


@pytest.mark.parametrize("may_be_deleted", [False, True])
@pytest.mark.parametrize("exists", [False, True])
def test_a_write_ends_with_a_topic_that_a_late_deletion_removed(
    may_be_deleted: bool, exists: bool
) -> None:
    """It is repeated as long as the topic exists, or no deletion can be late."""
    with scripted_world() as world:
        client = TopicMaker(world.context, "shortlived")
        client._may_be_deleted = may_be_deleted
        code = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = MetadataResponse(topics=[MetadataResponseTopic(error_code=code, name="topic")])
        broker = world.answer(
            client,
            (ProduceRequest, None),
            (MetadataRequest, found),
            (ProduceRequest, produced()),
        )
        answer = world.play(client._write(PLACE, [b"value"]))
        is_over = may_be_deleted and not exists
        assert (answer is None) is is_over
        assert len(broker.sent(ProduceRequest)) == (1 if is_over else 2)


def test_a_lost_deletion_may_still_arrive() -> None:
    with scripted_world() as world:
        client = TopicMaker(world.context, "shortlived")
        unknown = deleted(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker = world.answer(client, (DeleteTopicsRequest, None), (DeleteTopicsRequest, unknown))
        world.play(client._delete("topic"))
        assert client._may_be_deleted
        assert len(broker.requests) == 2
        assert not world.findings.violations


def test_a_topic_is_deleted_at_the_beginning_and_after_each_use() -> None:
    with scripted_world() as world:
        client = TopicMaker(world.context, "shortlived'1")
        created = CreateTopicsResponse(topics=[CreatableTopicResult(name="shortlived")])
        broker = world.answer(
            client,
            (DeleteTopicsRequest, deleted()),
            (CreateTopicsRequest, created),
            (ProduceRequest, produced()),
        )
        world.play_for(10.0, client)
        deletions = len(broker.sent(DeleteTopicsRequest))
        assert deletions == len(broker.sent(CreateTopicsRequest)) + 1 > 2
        names = {topic.name for each in broker.sent(DeleteTopicsRequest) for topic in each.topics}
        assert names == {"shortlived"}
        assert not world.findings.violations
