from __future__ import annotations

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.describe_configs import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
    effective_broker_config,
    effective_log_config,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ConfigRecord, ResourceType

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def _with(image: MetadataImage, *settings: tuple[int, str, str, str]) -> MetadataImage:
    return image.apply_all([ConfigRecord(*setting) for setting in settings], image.end)


def _retention(image: MetadataImage, broker: BrokerConfig) -> DescribedConfig:
    (described,) = describe_topic(image, "orders", broker, ["retention.ms"])
    return described


def _synonyms(described: DescribedConfig) -> list[tuple[str, str | None, str]]:
    return [(item.name, item.value, item.source.name) for item in described.synonyms]


def test_a_default(image: MetadataImage) -> None:
    described = _retention(image, BrokerConfig({}))
    assert (described.value, described.source) == ("604800000", ConfigSource.DEFAULT)
    assert described.is_default
    assert not described.read_only
    assert _synonyms(described) == []
    (size,) = describe_topic(image, "orders", BrokerConfig({}), ["segment.bytes"])
    assert _synonyms(size) == [("log.segment.bytes", "1073741824", "DEFAULT")]


def test_no_limit_in_hours_is_none_in_milliseconds(image: MetadataImage) -> None:
    assert _retention(image, BrokerConfig({"log.retention.hours": "-1"})).value == "-1"


def test_each_layer_stands_over_the_next(image: MetadataImage) -> None:
    static = BrokerConfig({"log.retention.hours": "2", "log.retention.minutes": "3"})
    image = _with(
        image, (BROKER, "", "log.retention.ms", "4"), (TOPIC, "orders", "retention.ms", "1")
    )
    broker = effective_broker_config(image, static, 1)
    described = _retention(image, broker)
    assert (described.value, described.source) == ("1", ConfigSource.TOPIC)
    assert _synonyms(described) == [
        ("retention.ms", "1", "TOPIC"),
        ("log.retention.ms", "4", "DYNAMIC_DEFAULT_BROKER"),
        ("log.retention.minutes", "3", "STATIC_BROKER"),
        ("log.retention.hours", "2", "STATIC_BROKER"),
        ("log.retention.hours", "168", "DEFAULT"),
    ]
    assert effective_log_config(image, "orders", broker).retention_ms == 1
    assert effective_log_config(image, "other", broker).retention_ms == 4


def test_a_coarser_unit_is_shown_in_the_keys_own(image: MetadataImage) -> None:
    described = _retention(image, BrokerConfig({"log.retention.minutes": "3"}))
    assert (described.value, described.source) == ("180000", ConfigSource.STATIC_BROKER)


def test_every_topic_key_agrees_with_the_log(image: MetadataImage) -> None:
    broker = BrokerConfig({"log.roll.hours": "1", "log.cleanup.policy": "compact"})
    values = {item.name: item.value for item in describe_topic(image, "orders", broker)}
    config = effective_log_config(image, "orders", broker)
    assert values["segment.ms"] == str(config.segment_ms)
    assert values["cleanup.policy"] == ",".join(config.cleanup_policy)
    assert values["max.message.bytes"] == str(config.max_message_bytes)
    assert "internal.segment.bytes" not in values


def test_a_brokers_keys(image: MetadataImage) -> None:
    image = _with(image, (BROKER, "1", "message.max.bytes", "7"), (BROKER, "2", "x.y", "7"))
    static = BrokerConfig({"message.max.bytes": "5", "ssl.key.password": "secret"})
    described = {
        item.name: item for item in describe_broker(effective_broker_config(image, static, 1))
    }
    size = described["message.max.bytes"]
    assert (size.value, size.source) == ("7", ConfigSource.DYNAMIC_BROKER)
    assert not size.read_only
    assert described["num.partitions"].read_only
    password = described["ssl.key.password"]
    assert password.sensitive
    assert password.value is None
    assert all(item.value is None for item in password.synonyms)
    assert effective_broker_config(image, static, 2).get("message.max.bytes") == 5


def test_a_broker_key_shows_its_own_value_only() -> None:
    broker = BrokerConfig({"log.retention.hours": "3"})
    fine, coarse = describe_broker(broker, ["log.retention.ms", "log.retention.hours"])[::-1]
    assert (fine.value, coarse.value) == (None, "3")
    assert _synonyms(fine) == [
        ("log.retention.hours", "3", "STATIC_BROKER"),
        ("log.retention.hours", "168", "DEFAULT"),
    ]


def test_the_default_of_all_brokers_shows_its_own_settings_only(image: MetadataImage) -> None:
    image = _with(image, (BROKER, "", "message.max.bytes", "7"))
    (described,) = describe_broker_defaults(image)
    assert (described.name, described.value) == ("message.max.bytes", "7")
    assert described.source is ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_a_groups_setting_stands_over_the_brokers(image: MetadataImage) -> None:
    key, group = "consumer.session.timeout.ms", ResourceType.GROUP
    image = _with(image, (group, "readers", key, "50000"))
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "46000"})
    (described,) = describe_group(image, "readers", broker, [key])
    assert (described.name, described.value) == (key, "50000")
    assert described.source is ConfigSource.GROUP
    assert not described.read_only
    (other,) = describe_group(image, "writers", broker, [key])
    assert (other.value, other.source) == ("46000", ConfigSource.STATIC_BROKER)
    assert key in {described.name for described in describe_group(image, "writers", broker)}
