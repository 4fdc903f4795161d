from __future__ import annotations

from lakelog.metadata.records import ConfigRecord, ResourceType
from lakelog.server.topics.log_settings import changes_internal, log_config
from memory_broker import MemoryBroker

GROUPS = "__consumer_offsets"


def test_settings_of_a_topic_override_the_broker_s() -> None:
    with MemoryBroker(log_retention_ms="5") as world:
        world.create("orders", retention_ms="7")
        image, config = world.broker.image, world.broker.config
        assert log_config(image, config, "orders").retention_ms == 7
        assert log_config(image, config, "no such topic").retention_ms == 5


def test_internal_topics_are_as_durable_as_any_topic(world: MemoryBroker) -> None:
    """Committed offsets must survive the same failures as the records."""
    world.start_coordinators()
    before = world.broker.image
    assert log_config(before, world.broker.config, GROUPS).durability != "fsync"
    world.create("orders", durability="fsync")
    image = world.broker.image
    assert log_config(image, world.broker.config, GROUPS).durability == "fsync"
    assert log_config(image, world.broker.config, "clicks").durability != "fsync"
    assert world.partition(GROUPS).log.config.durability == "fsync"
    assert changes_internal(before, image, ["orders"])
    assert not changes_internal(before, image, ["clicks"])


def test_a_leader_commits_with_no_fewer_replicas_than_elections_count_on() -> None:
    with MemoryBroker() as world:
        world.create("orders")
        image, config = world.broker.image, world.broker.config
        default = ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "2")
        lower = config.with_dynamic({"min.insync.replicas": "2"}, {"min.insync.replicas": "1"})
        assert log_config(image, lower, "orders").min_insync_replicas == 1
        assert log_config(image.apply(default), lower, "orders").min_insync_replicas == 2
        higher = config.with_dynamic({}, {"min.insync.replicas": "3"})
        assert log_config(image.apply(default), higher, "orders").min_insync_replicas == 3
