"""Bad requests about topics, partitions and their replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.case import Case, Difference, World
from lakelog.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from lakelog.protocol.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from lakelog.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

LONG_NAME = "n" * 250
UNKNOWN_ID = b"\x11" * 16


def _create(
    name: str = "conformance-new",
    partitions: int = 1,
    factor: int = 1,
    *,
    replicas: dict[int, list[int]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
    copies: int = 1,
) -> Callable[[World], Any]:
    """Asks for validation only, so that no case stands in the way of the next."""

    def build(world: World) -> Any:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in (replicas or {}).items()
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs or ()],
        )
        return CreateTopicsRequest(topics=[topic] * copies, timeout_ms=10_000, validate_only=True)

    return build


CREATE_TOPICS = [
    Case("CreateTopics", name, build)
    for name, build in (
        ("accepted", _create()),
        ("no topics", _create(copies=0)),
        ("the same topic twice", _create(copies=2)),
        ("exists", lambda world: _create(world.topic)(world)),
        ("empty name", _create("")),
        ("name too long", _create(LONG_NAME)),
        ("longest name", _create("n" * 249)),
        ("name is a dot", _create(".")),
        ("name with a space", _create("a b")),
        ("name with a slash", _create("a/b")),
        ("reserved name", _create("__cluster_metadata")),
        ("name that collides in metrics", _create("conformance_compacted")),
        ("no partitions", _create(partitions=0)),
        ("negative partitions", _create(partitions=-2)),
        ("default partitions", _create(partitions=-1)),
        ("no replicas", _create(factor=0)),
        ("negative replicas", _create(factor=-2)),
        ("default replicas", _create(factor=-1)),
        ("more replicas than brokers", _create(factor=2)),
        ("assignment and counts", _create(replicas={0: [1]})),
        ("assignment", _create(partitions=-1, factor=-1, replicas={0: [1], 1: [1]})),
        ("assignment with a gap", _create(partitions=-1, factor=-1, replicas={1: [1]})),
        ("negative partition", _create(partitions=-1, factor=-1, replicas={-1: [1]})),
        ("assignment to no broker", _create(partitions=-1, factor=-1, replicas={0: []})),
        ("assignment to an unknown broker", _create(partitions=-1, factor=-1, replicas={0: [9]})),
        ("assignment to one twice", _create(partitions=-1, factor=-1, replicas={0: [1, 1]})),
        (
            "assignments of different sizes",
            _create(partitions=-1, factor=-1, replicas={0: [1], 1: [1, 9]}),
        ),
        ("unknown configuration", _create(configs=[("no.such.key", "1")])),
        ("configuration of the wrong type", _create(configs=[("retention.ms", "soon")])),
        ("configuration out of bounds", _create(configs=[("retention.ms", "-2")])),
        ("configuration without value", _create(configs=[("retention.ms", None)])),
        ("unknown policy", _create(configs=[("cleanup.policy", "shrink")])),
        ("unknown codec", _create(configs=[("compression.type", "rar")])),
        (
            "lags that contradict",
            _create(configs=[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")]),
        ),
    )
]


def _delete(topics: list[DeleteTopicState] | None, names: list[str]) -> Any:
    return DeleteTopicsRequest(topics=topics or [], topic_names=names, timeout_ms=10_000)


DELETE_TOPICS = [
    Case("DeleteTopics", "unknown name", lambda w: _delete(None, ["no-such-topic"]), (1, 5)),
    Case("DeleteTopics", "empty name", lambda w: _delete(None, [""]), (1, 5)),
    Case("DeleteTopics", "name too long", lambda w: _delete(None, [LONG_NAME]), (1, 5)),
    Case("DeleteTopics", "no topics", lambda w: _delete(None, [])),
    Case(
        "DeleteTopics",
        "unknown name",
        lambda w: _delete([DeleteTopicState(name="no-such-topic")], []),
        (6, 6),
    ),
    Case(
        "DeleteTopics",
        "unknown id",
        lambda w: _delete([DeleteTopicState(topic_id=UNKNOWN_ID)], []),
        (6, 6),
    ),
    Case(
        "DeleteTopics", "neither name nor id", lambda w: _delete([DeleteTopicState()], []), (6, 6)
    ),
    Case(
        "DeleteTopics",
        "name and id",
        lambda w: _delete([DeleteTopicState(name=w.topic, topic_id=w.topic_id)], []),
        (6, 6),
    ),
    Case(
        "DeleteTopics",
        "by id twice",
        lambda w: _delete([DeleteTopicState(topic_id=w.topic_id)] * 2, []),
        (6, 6),
    ),
]


def _widen(
    count: int, brokers: list[list[int]] | None = None, topic: str | None = None, copies: int = 1
) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        wanted = CreatePartitionsTopic(
            name=world.topic if topic is None else topic,
            count=count,
            assignments=None
            if brokers is None
            else [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers],
        )
        return CreatePartitionsRequest(
            topics=[wanted] * copies, timeout_ms=10_000, validate_only=True
        )

    return build


CREATE_PARTITIONS = [
    Case("CreatePartitions", name, build)
    for name, build in (
        ("accepted", _widen(3)),
        ("no topics", _widen(3, copies=0)),
        ("the same topic twice", _widen(3, copies=2)),
        ("unknown topic", _widen(3, topic="no-such-topic")),
        ("empty name", _widen(3, topic="")),
        ("as many as there are", _widen(2)),
        ("fewer", _widen(1)),
        ("none", _widen(0)),
        ("negative", _widen(-1)),
        ("assignment", _widen(3, [[1]])),
        ("too few assignments", _widen(4, [[1]])),
        ("too many assignments", _widen(3, [[1], [1]])),
        ("empty list of assignments", _widen(3, [])),
        ("assignment to no broker", _widen(3, [[]])),
        ("assignment to an unknown broker", _widen(3, [[9]])),
        ("assignment to one twice", _widen(3, [[1, 1]])),
    )
]
CREATE_PARTITIONS.append(
    Case(
        "CreatePartitions",
        "of an internal topic",
        _widen(60, topic="__consumer_offsets"),
        differs=Difference(
            "INVALID_REQUEST", "NONE", "groups would be looked for in other partitions"
        ),
    )
)


def _metadata(
    name: str | None = "no-such-topic", topic_id: bytes = bytes(16), *, create: bool = False
) -> Any:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name, topic_id=topic_id)],
        allow_auto_topic_creation=create,
    )


METADATA = [
    Case("Metadata", "unknown topic", lambda w: _metadata(), (4, 99)),
    Case("Metadata", "empty name", lambda w: _metadata("")),
    Case("Metadata", "name too long", lambda w: _metadata(LONG_NAME, create=True)),
    Case("Metadata", "name with a space", lambda w: _metadata("a b", create=True)),
    Case("Metadata", "unknown id", lambda w: _metadata(None, UNKNOWN_ID), (12, 99)),
    Case("Metadata", "name and id", lambda w: _metadata(w.topic, w.topic_id), (12, 99)),
    Case(
        "Metadata",
        "neither name nor id",
        lambda w: _metadata(None),
        (13, 99),
        Difference("INVALID_REQUEST NONE", "UNKNOWN_SERVER_ERROR", "Kafka fails inside"),
    ),
    Case("Metadata", "an id too early", lambda w: _metadata(w.topic, w.topic_id), (10, 11)),
    Case("Metadata", "accepted", lambda w: _metadata(w.topic)),
]


def _pages(
    names: list[str], limit: int = 10, cursor: Cursor | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


DESCRIBE_TOPIC_PARTITIONS = [
    Case("DescribeTopicPartitions", name, build)
    for name, build in (
        ("accepted", lambda w: _pages([w.topic])),
        ("unknown topic", lambda w: _pages(["no-such-topic"])),
        ("name too long", lambda w: _pages([LONG_NAME])),
        ("the same topic twice", lambda w: _pages([w.topic, w.topic])),
        ("no room", lambda w: _pages([w.topic], 0)),
        ("negative room", lambda w: _pages([w.topic], -1)),
        (
            "negative cursor",
            lambda w: _pages([w.topic], 1, Cursor(topic_name=w.topic, partition_index=-1)),
        ),
        (
            "cursor beyond the topic",
            lambda w: _pages([w.topic], 1, Cursor(topic_name=w.topic, partition_index=99)),
        ),
        (
            "cursor beyond all topics",
            lambda w: _pages([w.topic], 1, Cursor(topic_name="zzz", partition_index=0)),
        ),
        (
            "cursor at another topic",
            lambda w: _pages([w.topic], 1, Cursor(topic_name="aaa", partition_index=0)),
        ),
        (
            "all, cursor at a topic that is gone",
            lambda w: _pages([], 1, Cursor(topic_name="aaa", partition_index=0)),
        ),
        (
            "cursor at a topic that is not",
            lambda w: _pages(["conf", w.topic], 1, Cursor(topic_name="conf", partition_index=0)),
        ),
    )
]
DESCRIBE_TOPIC_PARTITIONS.append(
    Case(
        "DescribeTopicPartitions",
        "empty name",
        lambda w: _pages([""]),
        differs=Difference("INVALID_TOPIC_EXCEPTION", "UNKNOWN_SERVER_ERROR", "Kafka fails inside"),
    )
)


def _elect(topic: str, *partitions: int, kind: int = 0) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=topic, partitions=list(partitions))],
    )


ELECT_LEADERS = [
    Case("ElectLeaders", "of all", lambda w: ElectLeadersRequest(topic_partitions=None)),
    Case("ElectLeaders", "of none", lambda w: ElectLeadersRequest(topic_partitions=[])),
    Case("ElectLeaders", "not needed", lambda w: _elect(w.topic, 0, 1)),
    Case("ElectLeaders", "unclean, not needed", lambda w: _elect(w.topic, 0, kind=1), (1, 2)),
    Case("ElectLeaders", "unknown topic", lambda w: _elect("no-such-topic", 0)),
    Case("ElectLeaders", "unknown partition", lambda w: _elect(w.topic, 9)),
    Case("ElectLeaders", "negative partition", lambda w: _elect(w.topic, -1)),
    Case("ElectLeaders", "unknown type", lambda w: _elect(w.topic, 0, kind=9), (1, 2)),
]


def _move(
    replicas: list[int] | None, partition: int = 0, topic: str | None = None, *, change: bool = True
) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        return AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=change,
            topics=[
                ReassignableTopic(
                    name=world.topic if topic is None else topic,
                    partitions=[
                        ReassignablePartition(partition_index=partition, replicas=replicas)
                    ],
                )
            ],
        )

    return build


def _moves(
    topics: list[ListPartitionReassignmentsTopics] | None,
) -> Callable[[World], ListPartitionReassignmentsRequest]:
    return lambda world: ListPartitionReassignmentsRequest(topics=topics)


REASSIGNMENTS = [
    *(
        Case("AlterPartitionReassignments", name, build)
        for name, build in (
            ("to where it is", _move([1])),
            ("to nowhere", _move([])),
            ("to one twice", _move([1, 1])),
            ("to an unknown broker", _move([9])),
            ("to a negative broker", _move([-1])),
            ("to one more broker", _move([1, 9])),
            ("cancel what does not go on", _move(None)),
            ("unknown partition", _move([1], 9)),
            ("cancel of an unknown partition", _move(None, 9)),
            ("unknown topic", _move([1], 0, "no-such-topic")),
            ("no topics", lambda w: AlterPartitionReassignmentsRequest(topics=[])),
        )
    ),
    Case("AlterPartitionReassignments", "other number", _move([1, 9], change=False), (1, 1)),
    *(
        Case(
            "ListPartitionReassignments",
            name,
            _moves(topics),
        )
        for name, topics in (
            ("all", None),
            ("none", []),
            (
                "unknown topic",
                [ListPartitionReassignmentsTopics(name="no-such", partition_indexes=[0])],
            ),
        )
    ),
]

CASES = [
    *CREATE_TOPICS,
    *DELETE_TOPICS,
    *CREATE_PARTITIONS,
    *METADATA,
    *DESCRIBE_TOPIC_PARTITIONS,
    *ELECT_LEADERS,
    *REASSIGNMENTS,
]
