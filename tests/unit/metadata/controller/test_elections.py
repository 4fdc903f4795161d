from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.metadata.controller.elections import ElectionType, plan_elect_leaders
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, PartitionRecord

PREFERRED, UNCLEAN = ElectionType


def _with(
    image: MetadataImage, isr: tuple[int, ...], leader: int, replicas: tuple[int, ...] = (1, 2)
) -> MetadataImage:
    topic = image.topic("orders")
    assert topic is not None
    return image.apply(PartitionRecord(topic.topic_id, 0, replicas, isr, leader, 5, 7))


def _elect(
    image: MetadataImage, kind: ElectionType, partition: int = 0, topic: str = "orders"
) -> tuple[MetadataImage, ErrorCode]:
    plan = plan_elect_leaders(image, kind, [(topic, [partition])])
    (result,) = plan.result
    assert (result.topic, result.partition) == (topic, partition)
    return image.apply_all(plan.records, image.end), result.error


def test_the_preferred_replica_takes_over(image: MetadataImage) -> None:
    after, error = _elect(_with(image, (1, 2), 2), PREFERRED)
    assert error is ErrorCode.NONE
    topic = after.topic("orders")
    assert topic is not None
    partition = topic.partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 6, 8)
    assert _elect(after, PREFERRED)[1] is ErrorCode.ELECTION_NOT_NEEDED


def test_it_must_be_in_sync(image: MetadataImage) -> None:
    lagging = _with(image, (2,), 2)
    assert _elect(lagging, PREFERRED)[1] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_needs_a_partition_without_a_leader(image: MetadataImage) -> None:
    assert _elect(image, UNCLEAN)[1] is ErrorCode.ELECTION_NOT_NEEDED
    led_by_0 = _with(image, (0,), 0, replicas=(0, 1))
    assert _elect(led_by_0, UNCLEAN)[1] is ErrorCode.ELECTION_NOT_NEEDED
    after, error = _elect(_with(image, (2,), -1), UNCLEAN)
    assert error is ErrorCode.NONE
    topic = after.topic("orders")
    assert topic is not None
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (1, (1,))


def test_what_does_not_exist(image: MetadataImage) -> None:
    assert _elect(image, PREFERRED, 9)[1] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _elect(image, PREFERRED, 0, "no")[1] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_election_of_all_partitions_reports_only_the_needed_ones(image: MetadataImage) -> None:
    assert plan_elect_leaders(image, PREFERRED, None).result == []
    (result,) = plan_elect_leaders(_with(image, (1, 2), 2), PREFERRED, None).result
    assert (result.partition, result.error) == (0, ErrorCode.NONE)


def test_a_partition_that_is_named_twice_is_elected_once(image: MetadataImage) -> None:
    image = _with(image, (1, 2), 2)
    plan = plan_elect_leaders(image, PREFERRED, [("orders", [0, 0]), ("orders", [0])])
    assert [(each.partition, each.error) for each in plan.result] == [(0, ErrorCode.NONE)]
    topic = image.apply_all(plan.records, image.end).topic("orders")
    assert topic is not None
    assert topic.partitions[0].leader_epoch == 6


def test_a_fenced_broker_is_not_elected(image: MetadataImage) -> None:
    waiting = _with(image, (1,), -1, replicas=(1,)).apply(BrokerFenced(1, 1))
    assert _elect(waiting, PREFERRED)[1] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert _elect(waiting, UNCLEAN)[1] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_an_unclean_election_may_name_its_leader(image: MetadataImage) -> None:
    leaderless = _with(image, (), -1, replicas=(1, 2, 3))

    def elect(leader: int) -> tuple[MetadataImage, ErrorCode]:
        plan = plan_elect_leaders(leaderless, UNCLEAN, [("orders", [0])], {("orders", 0): leader})
        (result,) = plan.result
        return leaderless.apply_all(plan.records, leaderless.end), result.error

    after, error = elect(2)
    topic = after.topic("orders")
    assert topic is not None
    state = topic.partitions[0]
    assert (error, state.leader, state.isr, state.leader_epoch) == (ErrorCode.NONE, 2, (2,), 6)
    assert elect(7)[1] is ErrorCode.INVALID_REQUEST
    leaderless = leaderless.apply(BrokerFenced(2, 1))
    assert elect(2)[1] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
