"""A log's settings: the topic's own keys, else the broker's, else the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from lakelog.base.config.key import ConfigError, ConfigKey, ConfigValue, Synonym
from lakelog.base.config.keys.topics import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    PAGE_CACHE,
    TOPIC_CONFIGS,
    VERIFY_SAMPLED,
    WEEK_MS,
)

__all__ = ["TOPIC_CONFIGS", "BrokerValues", "LogConfig", "validate_topic_configs"]


class BrokerValues(Protocol):
    """The broker's settings, which a `BrokerConfig` holds."""

    def is_set(self, name: str) -> bool:
        """Return whether the key has a value of its own, even if it equals the default."""
        ...

    def get(self, name: str) -> ConfigValue:
        """Return the value in force."""
        ...


def validate_topic_configs(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Return the typed values of a topic's own settings. Raises `ConfigError`."""
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            raise ConfigError(name, text, "unknown topic configuration")
        values[name] = key.parse(text)
    return values


def _resolve(key: ConfigKey, broker: BrokerValues | None) -> ConfigValue:
    """Return the first synonym with a value of its own, else the first with a default."""
    if broker is None or not key.synonyms:
        return key.default_value
    explicit = [synonym for synonym in key.synonyms if broker.is_set(synonym.name)]
    for synonym in (*explicit, *key.synonyms):
        value = broker.get(synonym.name)
        if value is not None:
            return _checked(key, synonym, _scaled(value, synonym.factor))
    return key.default_value


def _checked(key: ConfigKey, synonym: Synonym, value: ConfigValue) -> ConfigValue:
    """Check a broker's value against the bounds of the topic key, which may be narrower."""
    if key.validator is not None and not key.validator.accepts(value):
        raise ConfigError(synonym.name, str(value), f"not allowed; allowed: {key.allowed}")
    return value


def _scaled(value: ConfigValue, factor: int) -> ConfigValue:
    """Convert hours and minutes to milliseconds; any negative time means no limit."""
    if factor == 1:
        return value
    assert isinstance(value, int)
    return max(value * factor, -1)


class LogConfig(NamedTuple):
    """The resolved settings of a partition's log, with the units of the keys' names."""

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = 2_147_483_639
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    durability: str = PAGE_CACHE
    records_verify: str = VERIFY_SAMPLED
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    compression_type: str = "producer"
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    table_enable: bool = False
    table_archived_offsets: tuple[str, ...] = ()

    @classmethod
    def from_values(
        cls, overrides: Mapping[str, str], broker: BrokerValues | None = None
    ) -> LogConfig:
        """Resolve the settings of a topic, its broker's settings, and the defaults.

        Raises `ConfigError`, also for settings that contradict one another.
        """
        own = validate_topic_configs(overrides)
        values: dict[str, Any] = {
            field: own[name] if name in own else _resolve(TOPIC_CONFIGS[name], broker)
            for field, name in _KEY_OF_FIELD.items()
        }
        values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        values["segment_bytes"] = own.get("internal.segment.bytes", values["segment_bytes"])
        config = cls(**values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise ConfigError(
                "min.compaction.lag.ms",
                str(config.min_compaction_lag_ms),
                f"above max.compaction.lag.ms={config.max_compaction_lag_ms}",
            )
        return config


_KEY_OF_FIELD = {field: field.replace("_", ".") for field in LogConfig._fields}
