"""The settings in force for a topic, a group or a broker, and the source of each (KIP-226).

Passwords are never returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from lakelog.base.config.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config.key import ConfigKey, ConfigType, Effect, Synonym, UpdateMode
from lakelog.base.config.keys.groups import GROUP_CONFIGS
from lakelog.base.config.keys.topics import TOPIC_CONFIGS
from lakelog.base.config.log_config import LogConfig
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ResourceType


class ConfigSource(IntEnum):
    """`config_source` of DescribeConfigs v1+."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class SynonymValue(NamedTuple):
    """A value of a key, or of another key that supplies its default."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One key with its value and source; `synonyms` are in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    is_default: bool
    read_only: bool
    sensitive: bool
    synonyms: tuple[SynonymValue, ...]
    type: ConfigType
    doc: str


def effective_broker_config(
    image: MetadataImage, static: BrokerConfig, broker_id: int
) -> BrokerConfig:
    """Return `static` with the dynamic settings on top; unknown keys are ignored.

    Raises `ConfigError` for stored values that cannot be used together.
    """
    return static.with_dynamic(
        _with_known_keys(image.configs(ResourceType.BROKER, "")),
        _with_known_keys(image.configs(ResourceType.BROKER, str(broker_id))),
    )


def effective_log_config(image: MetadataImage, topic: str, broker: BrokerConfig) -> LogConfig:
    """Return a topic's settings in force; unknown keys are ignored.

    `broker` must be the effective configuration. Raises `ConfigError` for stored values that this
    version of lakelog rejects.
    """
    own = image.configs(ResourceType.TOPIC, topic)
    values = {key: value for key, value in own.items() if key in TOPIC_CONFIGS}
    return LogConfig.from_values(values, broker)


def describe_topic(
    image: MetadataImage, topic: str, broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return a topic's keys, sorted by name; `keys` None selects all.

    `broker` must be the effective configuration.
    """
    own = image.configs(ResourceType.TOPIC, topic)
    return [
        _described(key, _topic_synonyms(key, own, broker), read_only=False)
        for key in _selected(TOPIC_CONFIGS, keys)
        if not key.internal or key.name in own
    ]


def describe_group(
    image: MetadataImage, group: str, broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the keys of a group, which need not exist; `keys` None selects all.

    `broker` must be the effective configuration.
    """
    own = image.configs(ResourceType.GROUP, group)
    described = []
    for key in _selected(GROUP_CONFIGS, keys):
        synonyms = _broker_synonyms(key.synonyms, broker)
        if key.name in own:
            synonyms.insert(0, SynonymValue(key.name, own[key.name], ConfigSource.GROUP))
        described.append(_described(key, synonyms, read_only=False))
    return described


def describe_broker(
    broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the keys of the broker with this effective configuration; `keys` None selects all.

    As in Kafka, `log.retention.ms` has no value when only `log.retention.hours` is set, unlike the
    topic key `retention.ms`.
    """
    return [
        _described(
            key,
            _broker_synonyms(_family(key.name), broker),
            read_only=key.update_mode is UpdateMode.READ_ONLY,
        )
        for key in _selected(BROKER_CONFIGS, keys)
        if not key.internal or broker.is_set(key.name)
    ]


def describe_broker_defaults(
    image: MetadataImage, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Return the dynamic default settings of all brokers (the resource BROKER "")."""
    own = image.configs(ResourceType.BROKER, "")
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _described(key, [SynonymValue(key.name, own[key.name], source)], read_only=False)
        for key in _selected(BROKER_CONFIGS, keys)
        if key.name in own
    ]


def _with_known_keys(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in BROKER_CONFIGS}


def _selected(table: Mapping[str, ConfigKey], keys: Collection[str] | None) -> Iterable[ConfigKey]:
    return [table[name] for name in sorted(table) if keys is None or name in keys]


def _described(key: ConfigKey, synonyms: list[SynonymValue], *, read_only: bool) -> DescribedConfig:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    value = _value(key, synonyms[0]) if synonyms else key.default
    if key.sensitive:
        value = None
        synonyms = [SynonymValue(item.name, None, item.source) for item in synonyms]
    return DescribedConfig(
        name=key.name,
        value=value,
        source=source,
        is_default=source is ConfigSource.DEFAULT,
        read_only=read_only,
        sensitive=key.sensitive,
        synonyms=tuple(synonyms),
        type=key.type,
        doc=key.doc if key.effect is Effect.HONOURED else f"{key.effect.value}: {key.reason}",
    )


def _value(key: ConfigKey, synonym: SynonymValue) -> str | None:
    """Convert the hours and minutes of a synonym to the milliseconds of a topic key."""
    if synonym.name == key.name:
        return synonym.value
    for item in key.synonyms:
        if item.name == synonym.name and synonym.value is not None:
            return synonym.value if item.factor == 1 else _scaled(synonym.value, item.factor)
    return key.default


def _scaled(value: str, factor: int) -> str:
    return str(max(int(value) * factor, -1))


def _topic_synonyms(
    key: ConfigKey, own: Mapping[str, str], broker: BrokerConfig
) -> list[SynonymValue]:
    synonyms = _broker_synonyms(key.synonyms, broker)
    if key.name in own:
        synonyms.insert(0, SynonymValue(key.name, own[key.name], ConfigSource.TOPIC))
    return synonyms


def _broker_synonyms(names: Iterable[Synonym], broker: BrokerConfig) -> list[SynonymValue]:
    """Layer by layer, in each the finest unit first; the built-in defaults come last.

    As in Kafka, nothing is shown for hours alone while they are at their default.
    """
    layers = (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.static, ConfigSource.STATIC_BROKER),
    )
    names = list(names)
    synonyms = [
        SynonymValue(item.name, values[item.name], source)
        for values, source in layers
        for item in names
        if item.name in values
    ]
    defaults = [(item.name, BROKER_CONFIGS[item.name].default) for item in names]
    if synonyms or (defaults and defaults[0][1] is not None):
        synonyms += [
            SynonymValue(name, value, ConfigSource.DEFAULT)
            for name, value in defaults
            if value is not None
        ]
    return synonyms


def _family(name: str) -> tuple[Synonym, ...]:
    """Return a broker key and its coarser synonyms, as hours for milliseconds."""
    return _FAMILIES.get(name) or (Synonym(name),)


_FAMILIES = {key.synonyms[0].name: key.synonyms for key in TOPIC_CONFIGS.values() if key.synonyms}
