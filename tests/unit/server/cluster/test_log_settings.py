from __future__ import annotations

from lakelog.server.cluster.log_settings import changes_internal, log_config
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
