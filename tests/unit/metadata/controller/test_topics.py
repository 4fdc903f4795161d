from __future__ import annotations

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.uuids import ZERO_UUID
from lakelog.metadata.controller.assignment import PARTITIONS_PER_REQUEST_MAX
from lakelog.metadata.controller.topics import (
    MorePartitions,
    NewTopic,
    TopicReference,
    TopicResult,
    check_collision,
    check_topic_name,
    plan_create_partitions,
    plan_create_topics,
    plan_delete_topics,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ResourceType

BROKER = BrokerConfig({"num.partitions": "3", "default.replication.factor": "2"})
ORDERS = b"t" * 16


def _create(
    image: MetadataImage, random: SeededRandom, *topics: NewTopic, validate_only: bool = False
) -> tuple[MetadataImage, list[TopicResult]]:
    plan = plan_create_topics(
        image, topics, broker=BROKER, random=random, validate_only=validate_only
    )
    return image.apply_all(plan.records, image.end + 1), plan.result


def test_counts_of_minus_one_are_the_brokers_defaults(
    image: MetadataImage, random: SeededRandom
) -> None:
    image, (result,) = _create(image, random, NewTopic("new"))
    assert (result.error, result.partitions, result.replication_factor) == (ErrorCode.NONE, 3, 2)
    topic = image.topic("new")
    assert topic is not None
    assert topic.topic_id == result.topic_id != ZERO_UUID
    for partition in topic.partitions.values():
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert len(set(partition.replicas)) == 2
    assert len({partition.leader for partition in topic.partitions.values()}) == 3


def test_one_request_may_make_ten_thousand_partitions(
    image: MetadataImage, random: SeededRandom
) -> None:
    _, (result,) = _create(image, random, NewTopic("new", 10_000), validate_only=True)
    assert (result.error, result.partitions) == (ErrorCode.NONE, 10_000)


def test_configuration_is_kept(image: MetadataImage, random: SeededRandom) -> None:
    image, _ = _create(image, random, NewTopic("new", 1, 1, configs=[("retention.ms", "5")]))
    assert dict(image.configs(ResourceType.TOPIC, "new")) == {"retention.ms": "5"}


def test_a_configuration_may_be_repeated_but_not_contradicted(
    image: MetadataImage, random: SeededRandom
) -> None:
    same = NewTopic("same", 1, 1, configs=[("retention.ms", "5"), ("retention.ms", "5")])
    other = NewTopic("other", 1, 1, configs=[("retention.ms", "5"), ("retention.ms", "7")])
    image, results = _create(image, random, same, other)
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    assert results[1].message == "retention.ms has two values, '5' and '7'"
    assert dict(image.configs(ResourceType.TOPIC, "same")) == {"retention.ms": "5"}


def test_replicas_by_hand(image: MetadataImage, random: SeededRandom) -> None:
    image, (result,) = _create(
        image, random, NewTopic("new", assignments=[(1, [3, 1]), (0, [2, 3])])
    )
    assert (result.partitions, result.replication_factor) == (2, 2)
    topic = image.topic("new")
    assert topic is not None
    assert [topic.partitions[n].replicas for n in (0, 1)] == [(2, 3), (3, 1)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("caf\u00e9"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (NewTopic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("new", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("new", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("new", 10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic("new", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("new", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("new", configs=[("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("new", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("new", configs=[("retention", "1")]), ErrorCode.INVALID_CONFIG),
        (
            NewTopic("new", configs=[("retention.ms", "5"), ("retention.ms", "6")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            NewTopic("new", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (NewTopic("new", 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("new", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("new", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("new", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("new", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("new", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            NewTopic("new", assignments=[(0, [1]), (1, [1, 2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_a_bad_topic_is_refused_and_the_other_created(
    image: MetadataImage, random: SeededRandom, topic: NewTopic, code: ErrorCode
) -> None:
    image, (bad, good) = _create(image, random, topic, NewTopic("good", 1, 1))
    assert bad.error is code
    assert bad.message
    assert (bad.topic_id, bad.partitions) == (ZERO_UUID, -1)
    assert good.error is ErrorCode.NONE
    assert sorted(image.topic_ids) == ["good", "orders"]


def test_names_that_metrics_would_mix_up_are_refused(
    image: MetadataImage, random: SeededRandom
) -> None:
    image, results = _create(
        image, random, NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1), NewTopic("a-b", 1, 1)
    )
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
    ]


def test_a_deleted_topic_leaves_its_name_in_metrics_to_others(
    image: MetadataImage, random: SeededRandom
) -> None:
    image, _ = _create(image, random, NewTopic("a.b", 1, 1))
    image = image.apply_all(plan_delete_topics(image, [TopicReference("a.b")]).records, 3)
    image, (result,) = _create(image, random, NewTopic("a_b", 1, 1))
    assert result.error is ErrorCode.NONE
    assert dict(image.metric_names) == {"a_b": "a_b"}


def test_a_topic_asked_twice_is_refused_both_times(
    image: MetadataImage, random: SeededRandom
) -> None:
    image, results = _create(image, random, NewTopic("x"), NewTopic("x"), NewTopic("y"))
    assert [result.error for result in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


def test_validating_only_changes_nothing(image: MetadataImage, random: SeededRandom) -> None:
    after, (result,) = _create(image, random, NewTopic("new"), validate_only=True)
    assert result.partitions == 3
    assert after.topic("new") is None


def test_topics_are_deleted_by_name_and_by_id(image: MetadataImage, random: SeededRandom) -> None:
    image, (created,) = _create(image, random, NewTopic("new"))
    plan = plan_delete_topics(
        image, [TopicReference("orders"), TopicReference(None, created.topic_id)]
    )
    assert [(result.name, result.topic_id) for result in plan.result] == [
        ("orders", ORDERS),
        ("new", created.topic_id),
    ]
    assert not image.apply_all(plan.records, 3).topic_ids


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (TopicReference("none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicReference(None, b"n" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (TopicReference(None), ErrorCode.INVALID_REQUEST),
        (TopicReference("orders", ORDERS), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_deleted(
    image: MetadataImage, topic: TopicReference, code: ErrorCode
) -> None:
    plan = plan_delete_topics(image, [topic])
    assert [result.error for result in plan.result] == [code]
    assert plan.records == ()


def test_deleting_twice_at_once_or_when_disabled_does_nothing(image: MetadataImage) -> None:
    both = [TopicReference("orders"), TopicReference(None, ORDERS)]
    plan = plan_delete_topics(image, both)
    assert [result.error for result in plan.result] == [ErrorCode.INVALID_REQUEST] * 2
    plan = plan_delete_topics(image, both[:1], enabled=False)
    assert plan.result[0].error is ErrorCode.TOPIC_DELETION_DISABLED
    assert plan.records == ()


def test_partitions_are_added_after_the_old_ones(
    image: MetadataImage, random: SeededRandom
) -> None:
    plan = plan_create_partitions(image, [MorePartitions("orders", 5)], random=random)
    topic = image.apply_all(plan.records, 2).topic("orders")
    assert topic is not None
    assert sorted(topic.partitions) == [0, 1, 2, 3, 4]
    assert topic.partitions[0] == image.topic("orders").partitions[0]  # type: ignore[union-attr]
    assert all(len(partition.replicas) == 2 for partition in topic.partitions.values())


def test_added_partitions_may_be_assigned_by_hand(
    image: MetadataImage, random: SeededRandom
) -> None:
    wanted = MorePartitions("orders", 3, [[3, 1]])
    plan = plan_create_partitions(image, [wanted], random=random)
    topic = image.apply_all(plan.records, 2).topic("orders")
    assert topic is not None
    assert topic.partitions[2].replicas == (3, 1)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (MorePartitions("orders", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("orders", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("none", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("orders", 10_003), ErrorCode.POLICY_VIOLATION),
        (MorePartitions("orders", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("orders", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("orders", 3, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_added(
    image: MetadataImage, random: SeededRandom, wanted: MorePartitions, code: ErrorCode
) -> None:
    plan = plan_create_partitions(image, [wanted], random=random)
    assert [result.error for result in plan.result] == [code]
    assert plan.records == ()


def test_a_topic_whose_partitions_are_fixed_gets_no_more(
    image: MetadataImage, random: SeededRandom
) -> None:
    wanted = [MorePartitions("orders", 5)]
    plan = plan_create_partitions(image, wanted, random=random, fixed={"orders"})
    assert plan.result[0].error is ErrorCode.INVALID_REQUEST
    assert plan.result[0].message is not None
    assert plan.result[0].message.startswith("orders keeps its 2 partitions")
    assert plan.records == ()


def test_adding_is_validated_without_being_done(image: MetadataImage, random: SeededRandom) -> None:
    wanted = [MorePartitions("orders", 5)]
    plan = plan_create_partitions(image, wanted, random=random, validate_only=True)
    assert plan.result[0].error is ErrorCode.NONE
    assert plan.records == ()


@pytest.mark.parametrize(("beyond", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.POLICY_VIOLATION)])
def test_one_request_adds_as_many_partitions_as_fit_into_an_entry(
    image: MetadataImage, random: SeededRandom, beyond: int, code: ErrorCode
) -> None:
    topic = image.topic("orders")
    assert topic is not None
    count = len(topic) + PARTITIONS_PER_REQUEST_MAX + beyond
    wanted = [MorePartitions("orders", count)]
    plan = plan_create_partitions(image, wanted, random=random, validate_only=True)
    assert plan.result[0].error is code


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "x" * 249])
def test_a_legal_name(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (".", r"cannot be '\.'"),
        ("..", r"cannot be '\.'"),
        ("x" * 250, "250 characters; at most 249"),
        ("a b", "only ASCII letters"),
        ("é", "only ASCII letters"),
        ("a\n", "only ASCII letters"),
    ],
)
def test_an_illegal_name_is_rejected_with_the_reason(name: str, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_are_equal_in_metrics_collide() -> None:
    names = {"a_b": "a.b"}
    check_collision("a.b", names)
    check_collision("ab", names)
    with pytest.raises(KafkaError, match=r"a_b differs from a\.b only in"):
        check_collision("a_b", names)
