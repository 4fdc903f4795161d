from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.base.config.log_config import TOPIC_CONFIGS, LogConfig, validate_topic_configs


def test_defaults_declared_twice_agree() -> None:
    assert LogConfig.from_values({}) == LogConfig()
    assert LogConfig.from_values({}, BrokerConfig({})) == LogConfig()


def test_the_topics_own_value_wins() -> None:
    broker = BrokerConfig({"log.retention.ms": "5"})
    assert LogConfig.from_values({"retention.ms": "7"}, broker).retention_ms == 7


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.ms": "3"}, 3),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_wins(static: dict[str, str], retention_ms: int) -> None:
    assert LogConfig.from_values({}, BrokerConfig(static)).retention_ms == retention_ms


def test_booleans_and_lists_come_through_the_broker() -> None:
    broker = BrokerConfig({"log.preallocate": "true", "log.cleanup.policy": "compact,delete"})
    config = LogConfig.from_values({}, broker)
    assert config.preallocate is True
    assert config.cleanup_policy == {"compact", "delete"}


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    assert LogConfig.from_values({"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_tests_may_have_small_segments() -> None:
    assert LogConfig.from_values({"internal.segment.bytes": "100"}).segment_bytes == 100
    with pytest.raises(ConfigError):
        LogConfig.from_values({"segment.bytes": "100"})


def test_contradicting_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"above max\.compaction\.lag\.ms"):
        LogConfig.from_values({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.key", "1"),
        ("remote.storage.enable", "true"),
        ("message.timestamp.type", "Now"),
        ("compression.gzip.level", "0"),
        ("leader.replication.throttled.replicas", "x"),
        ("retention.ms", "-2"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        validate_topic_configs({name: text})


def test_every_synonym_is_a_broker_key() -> None:
    broker = BrokerConfig({})
    for key in TOPIC_CONFIGS.values():
        for synonym in key.synonyms:
            broker.get(synonym.name)


def test_every_default_obeys_its_own_bounds() -> None:
    for key in TOPIC_CONFIGS.values():
        if key.default is not None:
            assert key.parse(key.default) == key.default_value
