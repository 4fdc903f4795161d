"""Settings about elections belong to the cluster, and partitions follow them at once."""

from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.controller.configs import (
    ConfigChange,
    Operation,
    ResourceChange,
    plan_alter_configs,
    plan_stored_configs,
)
from lakelog.metadata.controller.election_settings import plan_election_settings
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerUnfenced,
    ConfigRecord,
    LeadersReviewed,
    ResourceType,
)

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


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
    assert _leader(_alter(waiting, resource, UNCLEAN, "true")) == 2
    assert _leader(_alter(waiting, resource, MIN_ISR, "2")) == -1
    stored = plan_stored_configs(waiting, ResourceType(resource[0]), resource[1], {UNCLEAN: "true"})
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
    for key, value in ((MIN_ISR, "2"), (UNCLEAN, "true"), ("retention.ms", "1")):
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
