"""The settings in force for a topic or a broker, and where each comes from (KIP-226).

Passwords are never shown, whatever layer they come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from lakelog.base.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config import ConfigKey, ConfigType, Synonym, UpdateMode
from lakelog.base.topic_config import LogConfig
from lakelog.base.topic_keys import TOPIC_CONFIGS
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ResourceType


class ConfigSource(IntEnum):
    """`config_source` of DescribeConfigs v1+."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class SynonymValue:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """`synonyms` in order of precedence, the first being the one in force."""

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
    """`static` under what was set dynamically. Keys of newer versions are passed over."""
    return static.with_dynamic(
        _known(image.configs(ResourceType.BROKER, "")),
        _known(image.configs(ResourceType.BROKER, str(broker_id))),
    )


def effective_log_config(image: MetadataImage, topic: str, broker: BrokerConfig) -> LogConfig:
    """A topic's settings; `broker` must be the effective one. Keys of newer versions are passed
    over; raises `ConfigError` for values that this version refuses."""
    own = image.configs(ResourceType.TOPIC, topic)
    known = {key: value for key, value in own.items() if key in TOPIC_CONFIGS}
    return LogConfig.from_values(known, broker)


def describe_topic(
    image: MetadataImage, topic: str, broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """By name; `keys` None is all. `broker` must be the effective one."""
    own = image.configs(ResourceType.TOPIC, topic)
    return [
        _described(key, _topic_synonyms(key, own, broker), read_only=False)
        for key in _selected(TOPIC_CONFIGS, keys)
        if not key.internal or key.name in own
    ]


def describe_broker(
    broker: BrokerConfig, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """Of the broker whose effective settings these are."""
    return [
        _described(
            key,
            _broker_synonyms(_family(key.name), broker),
            read_only=key.update_mode is UpdateMode.READ_ONLY,
        )
        for key in _selected(BROKER_CONFIGS, keys)
    ]


def describe_broker_defaults(
    image: MetadataImage, keys: Collection[str] | None = None
) -> list[DescribedConfig]:
    """What was set for all brokers at once, and nothing else (the resource BROKER "")."""
    own = image.configs(ResourceType.BROKER, "")
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        _described(key, [SynonymValue(key.name, own[key.name], source)], read_only=False)
        for key in _selected(BROKER_CONFIGS, keys)
        if key.name in own
    ]


def _known(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in BROKER_CONFIGS}


def _selected(table: Mapping[str, ConfigKey], keys: Collection[str] | None) -> Iterable[ConfigKey]:
    return [table[name] for name in sorted(table) if keys is None or name in keys]


def _described(key: ConfigKey, synonyms: list[SynonymValue], *, read_only: bool) -> DescribedConfig:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    value = _in_unit(key, synonyms[0]) if synonyms else key.default
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
        doc=key.doc or f"No effect: {key.reason}.",
    )


def _in_unit(key: ConfigKey, synonym: SynonymValue) -> str | None:
    """Hours and minutes in the key's milliseconds."""
    factors = {item.name: item.factor for item in key.synonyms or _family(key.name)}
    factor = factors.get(synonym.name, 1)
    if factor == 1 or synonym.value is None:
        return synonym.value
    return str(max(int(synonym.value) * factor, -1))


def _topic_synonyms(
    key: ConfigKey, own: Mapping[str, str], broker: BrokerConfig
) -> list[SynonymValue]:
    synonyms = _broker_synonyms(key.synonyms, broker)
    if key.name in own:
        synonyms.insert(0, SynonymValue(key.name, own[key.name], ConfigSource.TOPIC))
    return synonyms


def _broker_synonyms(names: Iterable[Synonym], broker: BrokerConfig) -> list[SynonymValue]:
    """Layer by layer, in each the finest unit first; defaults that are not null at the end."""
    layers = (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.static, ConfigSource.STATIC_BROKER),
    )
    names = list(names)
    found = [
        SynonymValue(item.name, values[item.name], source)
        for values, source in layers
        for item in names
        if item.name in values
    ]
    defaults = [
        SynonymValue(item.name, default, ConfigSource.DEFAULT)
        for item in names
        if (default := BROKER_CONFIGS[item.name].default) is not None
    ]
    return found + defaults


def _family(name: str) -> tuple[Synonym, ...]:
    """A broker key and the coarser ones that stand in for it."""
    for key in TOPIC_CONFIGS.values():
        if key.synonyms and key.synonyms[0].name == name:
            return key.synonyms
    return (Synonym(name),)
