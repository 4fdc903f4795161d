"""Changes of configurations (KIP-339): one operation per key, each resource whole or not at all.

Error codes follow Kafka 4.3.1: INVALID_CONFIG for a topic's value, INVALID_REQUEST for a
broker's. Kafka accepts unknown broker keys, because plug-ins may read them; lakelog has no plug-ins
and rejects them as mistakes.

Changes to the settings of a running broker (KIP-226) have limits, which come from Apache Kafka's
`DynamicBrokerConfig`. A number of threads can at most double or halve in one change. A value that
locks out every client, including the client that could revert it, is accepted at a start only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from lakelog.base.config.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config.key import ConfigError, ConfigKey, ConfigType, UpdateMode
from lakelog.base.config.keys.groups import GROUP_CONFIGS, check_group_configs
from lakelog.base.config.log_config import TOPIC_CONFIGS, LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.leadership import with_review
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.metadata.describe_configs import effective_broker_config
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ConfigRecord, Record, ResourceType

THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
_NEEDED = ("log.cleaner.threads", "max.connections", "max.connection.creation.rate")
"""Keys that can be 0 at a start only."""


def check_running_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `ConfigError` unless a running broker can change from `before` to `after`."""
    check_needed(before, after)
    for name in THREAD_COUNTS:
        _check_count(name, before.get_int(name), after.get_int(name))


def check_needed(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `ConfigError` if a key becomes 0 that may be 0 at a start only."""
    for name in _NEEDED:
        if after.get_int(name) == 0 != before.get_int(name):
            raise ConfigError(
                name, "0", "only possible at the start of a broker; allowed: 1 or more"
            )


def _check_count(name: str, before: int, after: int) -> None:
    least, most = max(before // 2, 1), max(before * 2, 1)
    if after != before and not least <= after <= most:
        raise ConfigError(
            name,
            str(after),
            f"not allowed while the value is {before}; allowed: {least} to {most}, half to double "
            "the current value. Change it in several steps",
        )


_TABLES: Mapping[int, Mapping[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
}
_ANOTHER_BROKER = -1
"""A resource without settings of its own."""


class Operation(IntEnum):
    """`config_operation` on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One operation on a key, unchecked; `value` is ignored for DELETE."""

    key: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """The changes of one resource, unchecked. A BROKER named "" is the default of all brokers."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]


class Replacement(NamedTuple):
    """The new settings of a resource (AlterConfigs); all other keys return to their defaults."""

    resource_type: int
    resource_name: str
    configs: Sequence[tuple[str, str | None]]


class ConfigResult(NamedTuple):
    """The result for one resource."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def plan_alter_configs(
    image: MetadataImage,
    resources: Sequence[ResourceChange],
    *,
    broker: BrokerConfig,
    validate_only: bool = False,
) -> Plan[list[ConfigResult]]:
    """Return one result per resource, in the order of the request.

    `broker` has the static settings of this broker. A change is checked as a step from the settings
    in force to the new ones. Raises nothing for a rejected resource: its result has the error
    (KIP-339).
    """
    records: list[Record] = []
    results = []
    names = [(change.resource_type, change.resource_name) for change in resources]
    for change, name in zip(resources, names, strict=True):
        try:
            if names.count(name) > 1:
                raise _request("the request names a resource twice")
            records += _alter(image, change, broker)
        except KafkaError as error:
            results.append(ConfigResult(*name, error.code, error.message))
            continue
        results.append(ConfigResult(*name))
    return Plan(() if validate_only else tuple(with_review(image, records)), results)


def plan_replace_configs(
    image: MetadataImage,
    resources: Sequence[Replacement],
    *,
    broker: BrokerConfig,
    validate_only: bool = False,
) -> Plan[list[ConfigResult]]:
    """Like `plan_alter_configs`, for the older request, which replaces all settings."""
    changes = [_as_change(image, resource) for resource in resources]
    return plan_alter_configs(image, changes, broker=broker, validate_only=validate_only)


def plan_stored_configs(
    image: MetadataImage,
    resource_type: ResourceType,
    resource_name: str,
    values: Mapping[str, str | None],
) -> Plan[None]:
    """Change the stored settings while no broker runs; None removes a value.

    Removing always succeeds, also of a value that keeps the broker from starting. Raises
    INVALID_CONFIG for an unknown key or an invalid value, and UNKNOWN_TOPIC_OR_PARTITION.
    """
    table = _TABLES.get(resource_type, {})
    if resource_type is ResourceType.TOPIC and resource_name not in image.topic_ids:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {resource_name}")
    for name, value in values.items():
        if value is None:
            continue
        if name not in table:
            raise _invalid(f"unknown {resource_type.name.lower()} configuration {name}")
        if table[name].update_mode is UpdateMode.READ_ONLY and table is BROKER_CONFIGS:
            raise _invalid(f"{name} can only be set when a broker starts")
        try:
            table[name].parse(value)
        except ConfigError as error:
            raise _invalid(str(error)) from error
    present = image.configs(resource_type, resource_name)
    changed = [name for name in sorted(values) if values[name] != present.get(name)]
    records = [ConfigRecord(resource_type, resource_name, name, values[name]) for name in changed]
    return Plan(tuple(with_review(image, records)), None)


def _as_change(image: MetadataImage, replacement: Replacement) -> ResourceChange:
    named = {key for key, _ in replacement.configs}
    present = image.config_map.get((replacement.resource_type, replacement.resource_name)) or ()
    return ResourceChange(
        replacement.resource_type,
        replacement.resource_name,
        [
            *(ConfigChange(key, Operation.SET, value) for key, value in replacement.configs),
            *(ConfigChange(key, Operation.DELETE, None) for key in present if key not in named),
        ],
    )


def _alter(image: MetadataImage, change: ResourceChange, broker: BrokerConfig) -> list[Record]:
    _check_request(change)
    if change.resource_type == ResourceType.TOPIC:
        if not change.resource_name:
            raise _request("topics have no default configuration; name a topic")
        check_topic_name(change.resource_name)
        if change.resource_name not in image.topic_ids:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {change.resource_name}"
            )
        return _alter_topic(image, change, broker)
    if change.resource_type == ResourceType.BROKER:
        return _alter_broker(image, change, broker)
    if change.resource_type == ResourceType.GROUP:
        return _alter_group(image, change, broker)
    raise _request(f"resource type {change.resource_type} has no configuration to alter")


def _check_request(change: ResourceChange) -> None:
    keys = [item.key for item in change.changes]
    if len(set(keys)) != len(keys):
        raise _request("the request names a key twice")
    for item in change.changes:
        if item.operation not in Operation.__members__.values():
            raise _request(f"unknown operation {item.operation} for {item.key}")
        if item.value is None and item.operation != Operation.DELETE:
            raise _request(f"{item.key} has no value")


def _alter_topic(
    image: MetadataImage, change: ResourceChange, broker: BrokerConfig
) -> list[Record]:
    def check(new: dict[str, str]) -> None:
        LogConfig.from_values(new, effective_broker_config(image, broker, broker.node_id))

    return _alter_known(image, change, TOPIC_CONFIGS, check)


def _alter_group(
    image: MetadataImage, change: ResourceChange, broker: BrokerConfig
) -> list[Record]:
    """The group need not exist yet."""
    if not change.resource_name:
        raise _request("default group resources are not allowed")
    return _alter_known(
        image, change, GROUP_CONFIGS, lambda new: check_group_configs(new, broker.get_int)
    )


def _alter_known(
    image: MetadataImage,
    change: ResourceChange,
    keys: Mapping[str, ConfigKey],
    check: Callable[[dict[str, str]], object],
) -> list[Record]:
    """Alter values of these keys; `check` raises `ConfigError` for all that would be in force."""
    kind = ResourceType(change.resource_type)
    old = dict(image.configs(kind, change.resource_name))
    new = dict(old)
    for item in change.changes:
        key = keys.get(item.key)
        if key is None and item.operation != Operation.DELETE:
            raise _invalid(f"unknown {kind.name.lower()} configuration {item.key}")
        _operate(new, item, key)
    try:
        check({key: value for key, value in new.items() if key in keys})
    except ConfigError as error:
        raise _invalid(str(error)) from error
    return _differences(change, old, new)


def _alter_broker(
    image: MetadataImage, change: ResourceChange, broker: BrokerConfig
) -> list[Record]:
    name = change.resource_name
    if name and (not name.isdecimal() or int(name) not in image.brokers):
        raise _request(f"no broker {name}")
    old = dict(image.configs(ResourceType.BROKER, name))
    new = dict(old)
    for item in change.changes:
        key = BROKER_CONFIGS.get(item.key)
        if item.operation != Operation.DELETE:
            _check_dynamic(key, item.key, name)
        _operate(new, item, key)
    records = _differences(change, old, new)
    changed = image.apply_all(records, image.end)
    unforced = broker.with_forced(broker.forced - {item.key for item in change.changes})
    try:
        check_running_change(
            effective_broker_config(image, broker, broker.node_id),
            effective_broker_config(changed, unforced, broker.node_id),
        )
        # A value of the broker's own may hide a default of all, which counts for other brokers.
        check_needed(
            effective_broker_config(image, broker, _ANOTHER_BROKER),
            effective_broker_config(changed, unforced, _ANOTHER_BROKER),
        )
    except ConfigError as error:
        raise _request(str(error)) from error
    return records


def _check_dynamic(key: ConfigKey | None, name: str, broker_name: str) -> None:
    if key is None:
        raise _request(f"unknown broker configuration {name}")
    if key.update_mode is UpdateMode.READ_ONLY:
        raise _request(f"{name} can only be set when a broker starts")
    if key.update_mode is UpdateMode.PER_BROKER and not broker_name:
        raise _request(f"{name} can only be set on a single broker")


def _operate(values: dict[str, str], change: ConfigChange, key: ConfigKey | None) -> None:
    """Appending an existing item, or subtracting a missing one, changes nothing."""
    if change.operation == Operation.DELETE:
        values.pop(change.key, None)
        return
    assert key is not None
    assert change.value is not None
    if change.operation == Operation.SET:
        values[change.key] = change.value
        return
    if key.type is not ConfigType.LIST:
        raise _invalid(f"{key.name} is not a list; its only operations are SET and DELETE")
    items = _items(values.get(key.name, key.default or ""))
    given = _items(change.value)
    if change.operation == Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    values[key.name] = ",".join(items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _differences(change: ResourceChange, old: dict[str, str], new: dict[str, str]) -> list[Record]:
    return [
        ConfigRecord(change.resource_type, change.resource_name, key, new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _request(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
