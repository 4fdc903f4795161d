"""Settings about elections belong to the cluster, and partitions follow them at once.

Reports of replicas whose logs are damaged or have failed.
"""

from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.configs import (
    ConfigChange,
    Operation,
    ResourceChange,
    plan_alter_configs,
    plan_stored_configs,
)
from lakelog.metadata.controller.leadership import (
    ElectionType,
    plan_elect_leaders,
    plan_election_settings,
    plan_failed_replicas,
)
from lakelog.metadata.failover import NO_LEADER, Failure, PartitionImage
from lakelog.metadata.features import METADATA_VERSION, OFFLINE_SINCE
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerReadOnly,
    BrokerRecord,
    BrokerUnfenced,
    ConfigRecord,
    FeatureRecord,
    LeadersReviewed,
    PartitionRecord,
    Record,
    ResourceType,
    TopicRecord,
)

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


MIN_ISR, ELECTION_SETTINGS_UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def _alter(image: MetadataImage, resource: tuple[int, str], key: str, value: str) -> MetadataImage:
    change = ResourceChange(*resource, [ConfigChange(key, Operation.SET, value)])
    plan = plan_alter_configs(image, [change], broker=BrokerConfig({}))
    return image.apply_all(plan.records, image.end)


def _leader(image: MetadataImage) -> int:
    topic = image.topic("orders")
    assert topic is not None
    return topic.partitions[0].leader


@pytest.fixture
def waiting(image: MetadataImage) -> MetadataImage:
    """Broker 1 alone is eligible for partition 0 and down; broker 2 is up."""
    for record in (BrokerFenced(2, 1), BrokerFenced(1, 1), BrokerUnfenced(2, 1)):
        image = image.apply(record)
    assert _leader(image) == -1
    return image


@pytest.mark.parametrize(
    "resource", [(ResourceType.TOPIC, "orders"), (ResourceType.BROKER, "")], ids=["topic", "all"]
)
def test_a_partition_without_a_leader_gets_one_as_soon_as_loss_is_accepted(
    waiting: MetadataImage, resource: tuple[int, str]
) -> None:
    assert _leader(_alter(waiting, resource, ELECTION_SETTINGS_UNCLEAN, "true")) == 2
    assert _leader(_alter(waiting, resource, MIN_ISR, "2")) == -1
    stored = plan_stored_configs(
        waiting, ResourceType(resource[0]), resource[1], {ELECTION_SETTINGS_UNCLEAN: "true"}
    )
    assert _leader(waiting.apply_all(stored.records, waiting.end)) == 2


def test_the_elr_ends_when_fewer_replicas_suffice(image: MetadataImage) -> None:
    image = _alter(image, (ResourceType.TOPIC, "orders"), MIN_ISR, "2").apply(BrokerFenced(2, 1))
    topic = image.topic("orders")
    assert topic is not None
    assert topic.partitions[0].elr == (2,)
    topic = _alter(image, (ResourceType.TOPIC, "orders"), MIN_ISR, "1").topic("orders")
    assert topic is not None
    assert topic.partitions[0].elr == ()


def test_a_change_without_an_effect_is_not_reviewed(image: MetadataImage) -> None:
    for key, value in ((MIN_ISR, "2"), (ELECTION_SETTINGS_UNCLEAN, "true"), ("retention.ms", "1")):
        change = ResourceChange(
            ResourceType.TOPIC, "orders", [ConfigChange(key, Operation.SET, value)]
        )
        plan = plan_alter_configs(image, [change], broker=BrokerConfig({}))
        assert LeadersReviewed() not in plan.records


def test_the_first_brokers_settings_count_for_the_whole_cluster(image: MetadataImage) -> None:
    first = BrokerConfig({MIN_ISR: "2", "num.partitions": "3"})
    records = plan_election_settings(image, first)
    assert records == [ConfigRecord(ResourceType.BROKER, "", MIN_ISR, "2")]
    image = image.apply_all(records, image.end)
    assert plan_election_settings(image, BrokerConfig({MIN_ISR: "1"})) == []
    assert plan_election_settings(image, BrokerConfig({})) == []


TOPIC, GONE = b"t" * 16, b"g" * 16


@pytest.fixture
def two_partitions() -> MetadataImage:
    """Two partitions that broker 1 leads, the second one alone."""
    brokers = [BrokerRecord(each, bytes([each]) * 16, 1, (), None) for each in (1, 2)]
    states = [
        PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 1, 5, 8),
        PartitionRecord(TOPIC, 1, (1,), (1,), 1, 5, 8),
    ]
    return MetadataImage().apply_all([*brokers, TopicRecord("t", TOPIC), *states], 1)


def test_only_a_failed_replica_with_a_successor_hands_over(two_partitions: MetadataImage) -> None:
    failed = dict.fromkeys([(TOPIC, 0), (TOPIC, 1), (GONE, 0), (TOPIC, 7)], Failure(5))
    (record,) = plan_failed_replicas(two_partitions, 1, 1, failed).records
    assert record == PartitionRecord(TOPIC, 0, (1, 2), (2,), 2, 6, 9)
    assert plan_failed_replicas(two_partitions.apply(record), 1, 1, failed).records == ()


def test_a_broker_that_cannot_write_is_no_successor(two_partitions: MetadataImage) -> None:
    stuck = two_partitions.apply(PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, 5, 9, (2,)))
    stuck = stuck.apply(BrokerReadOnly(2, 1))
    assert plan_failed_replicas(stuck, 1, 1, {(TOPIC, 0): Failure(5)}).records == ()


def test_a_partition_has_no_leader_while_its_only_log_is_offline(
    two_partitions: MetadataImage,
) -> None:
    failed = {(TOPIC, 1): Failure(5, is_offline=True)}
    (record,) = plan_failed_replicas(two_partitions, 1, 1, failed).records
    assert record == PartitionRecord(TOPIC, 1, (1,), (), NO_LEADER, 6, 9, (1,))
    assert plan_failed_replicas(two_partitions.apply(record), 1, 1, failed).records == ()


def test_a_broker_that_cannot_write_leads_if_the_only_other_log_is_offline(
    two_partitions: MetadataImage,
) -> None:
    stuck = two_partitions.apply(PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, 5, 9, (2,)))
    stuck = stuck.apply(BrokerReadOnly(2, 1))
    failed = {(TOPIC, 0): Failure(5, is_offline=True)}
    (record,) = plan_failed_replicas(stuck, 1, 1, failed).records
    assert record == PartitionRecord(TOPIC, 0, (1, 2), (2,), 2, 6, 10)


def test_an_unclean_election_chooses_no_replica_whose_log_is_offline(
    two_partitions: MetadataImage,
) -> None:
    alone = two_partitions.apply(PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, 5, 9))
    failed = {(TOPIC, index): Failure(5, is_offline=True) for index in (0, 1)}
    offline = alone.apply_all(plan_failed_replicas(alone, 1, 1, failed).records, alone.end)
    leaders = {}
    for index in (0, 1):
        after, error = _elect(offline, UNCLEAN, index, "t")
        found = after.partition("t", index)
        assert found is not None and error is ErrorCode.NONE
        leaders[index] = found.leader
    assert leaders == {0: 2, 1: 1}, "broker 1 has the only replica of the second partition"


@pytest.fixture
def remembering(two_partitions: MetadataImage) -> MetadataImage:
    """Broker 1 alone is in sync in both partitions; the metadata has offline replicas."""
    level = FeatureRecord(METADATA_VERSION, OFFLINE_SINCE)
    alone = PartitionRecord(TOPIC, 0, (1, 2), (1,), 1, 5, 9)
    return two_partitions.apply_all([level, alone], two_partitions.end)


def _failed(image: MetadataImage, *indexes: int) -> MetadataImage:
    failed = {(TOPIC, index): Failure(5, is_offline=True) for index in indexes}
    image = image.apply_all(plan_failed_replicas(image, 1, 1, failed).records, image.end)
    assert plan_failed_replicas(image, 1, 1, failed).records == ()
    return image


def _state(image: MetadataImage, index: int = 0) -> PartitionImage:
    found = image.partition("t", index)
    assert found is not None
    return found


def test_the_metadata_remembers_that_a_log_is_offline(remembering: MetadataImage) -> None:
    offline = _failed(remembering, 0)
    assert (_state(offline).leader, _state(offline).offline) == (NO_LEADER, (1,))
    reviews: list[list[Record]] = [
        [LeadersReviewed()],
        [BrokerFenced(1, 1), BrokerUnfenced(1, 1)],
        [BrokerFenced(2, 1), BrokerUnfenced(2, 1)],
    ]
    for records in reviews:
        assert _state(offline.apply_all(records, offline.end)).leader == NO_LEADER
    start: list[Record] = [
        BrokerFenced(1, 1),
        BrokerRecord(1, b"n" * 16, 2, (), None),
        BrokerUnfenced(1, 2),
    ]
    again = _state(offline.apply_all(start, offline.end))
    assert (again.leader, again.offline) == (1, ())


def test_a_follower_whose_log_is_offline_is_remembered_too(remembering: MetadataImage) -> None:
    followed = remembering.apply(PartitionRecord(TOPIC, 0, (1, 2), (1, 2), 2, 5, 10))
    offline = _state(_failed(followed, 0))
    assert (offline.leader, offline.isr, offline.offline) == (2, (2,), (1,))


@pytest.mark.parametrize("level", [OFFLINE_SINCE - 1, OFFLINE_SINCE])
def test_another_replica_leads_at_once_if_loss_is_accepted(
    remembering: MetadataImage, level: int
) -> None:
    image = remembering.apply(FeatureRecord(METADATA_VERSION, level))
    image = image.apply(ConfigRecord(ResourceType.TOPIC, "t", ELECTION_SETTINGS_UNCLEAN, "true"))
    for stuck in (image, image.apply(BrokerReadOnly(2, 1))):
        assert (_state(_failed(stuck, 0)).leader, _state(_failed(stuck, 1), 1).leader) == (2, -1)


def test_older_brokers_need_not_read_that_a_log_is_offline(remembering: MetadataImage) -> None:
    older = remembering.apply(FeatureRecord(METADATA_VERSION, OFFLINE_SINCE - 1))
    assert _state(_failed(older, 0)).offline == ()
    failed = {(TOPIC, 0): Failure(5, is_offline=True)}
    upgraded = _failed(older, 0).apply(FeatureRecord(METADATA_VERSION, OFFLINE_SINCE))
    (record,) = plan_failed_replicas(upgraded, 1, 1, failed).records
    assert isinstance(record, PartitionRecord)
    assert record.offline == (1,), "the broker reports it again"


def test_no_requested_election_chooses_a_log_that_is_offline(remembering: MetadataImage) -> None:
    offline = _failed(remembering, 0, 1)
    assert _elect(offline, UNCLEAN, 1, "t")[1] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    named = plan_elect_leaders(offline, UNCLEAN, [("t", [0])], {("t", 0): 1})
    assert [(row.error, row.message) for row in named.result] == [
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "the log of broker 1 is offline")
    ]
    elected, error = _elect(offline, UNCLEAN, 0, "t")
    assert (error, _state(elected).leader, _state(elected).offline) == (ErrorCode.NONE, 2, (1,))
    assert _elect(elected, PREFERRED, 0, "t")[1] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_another_process_reports_nothing(two_partitions: MetadataImage) -> None:
    with pytest.raises(KafkaError, match="not registered in epoch 2"):
        plan_failed_replicas(two_partitions, 1, 2, {(TOPIC, 0): Failure(5)})
