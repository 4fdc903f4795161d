from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigError, Effect, Synonym
from lakelog.base.config.keys.topics import HOUR_MS, TOPIC_CONFIGS
from lakelog.base.config.log_config import LogConfig, validate_topic_configs

THROTTLED = TOPIC_CONFIGS["leader.replication.throttled.replicas"]


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,12:3"])
def test_throttled_replicas_are_partitions_with_brokers(text: str) -> None:
    THROTTLED.parse(text)


@pytest.mark.parametrize("text", ["*,0:1", "0", "0:", "a:b", "0:1:2"])
def test_malformed_throttled_replicas_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="PARTITION:BROKER"):
        THROTTLED.parse(text)


def test_a_time_has_its_finest_broker_key_first() -> None:
    assert TOPIC_CONFIGS["segment.ms"].synonyms == (
        Synonym("log.roll.ms"),
        Synonym("log.roll.hours", HOUR_MS),
    )


def test_a_topic_and_its_broker_key_have_the_same_default() -> None:
    """Kafka's tools show one as the default of the other."""
    for key in TOPIC_CONFIGS.values():
        for synonym in key.synonyms:
            default = BROKER_CONFIGS[synonym.name].default_value
            if isinstance(default, int) and not isinstance(default, bool):
                default *= synonym.factor
            assert default in (key.default_value, None), (key.name, synonym.name)


def test_a_topic_cannot_be_moved_to_tiered_storage() -> None:
    with pytest.raises(ConfigError, match="tiered storage is not supported"):
        TOPIC_CONFIGS["remote.storage.enable"].parse("true")
    assert TOPIC_CONFIGS["remote.storage.enable"].parse("false") is False


def test_a_key_without_effect_says_why() -> None:
    for key in TOPIC_CONFIGS.values():
        assert key.effect is Effect.HONOURED or key.reason, key.name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table.name", "a/b"),
        ("table.archived.offsets", "0:1,1"),
        ("table.archived.offsets", "0:-1"),
        ("table.enable", "yes"),
        ("table.schema.registry.url", "registry:8081"),
        ("table.schema.registry.url", "http://user:secret@registry"),
    ],
)
def test_a_value_that_no_table_can_use_is_rejected(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        validate_topic_configs({name: text})


def test_the_archived_offsets_are_a_list_of_partitions() -> None:
    found = LogConfig.from_values({"table.enable": "true", "table.archived.offsets": "0:12, 1:0"})
    assert found.table_enable
    assert found.table_archived_offsets == ("0:12", "1:0")
