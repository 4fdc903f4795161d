"""A broker's settings: typed values of Kafka's keys, in layers.

The order of precedence is Kafka's: dynamic for this broker, dynamic for all brokers, static,
default. A key that is set on the command line (`serve --set`) precedes its stored dynamic values.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from types import MappingProxyType

from lakelog.base.config.key import ConfigError, ConfigKey, ConfigValue, Effect, key_table
from lakelog.base.config.keys.groups import (
    CONSUMER_GROUP_KEYS,
    GROUP_KEYS,
    TRANSACTION_KEYS,
    check_consumer_group_keys,
)
from lakelog.base.config.keys.inert import INERT_KEYS, REJECTED_KEYS
from lakelog.base.config.keys.logs import CLEANER_KEYS, LOG_KEYS, check_cleaner_keys
from lakelog.base.config.keys.node import CONNECTION_KEYS, NODE_KEYS, REPLICATION_KEYS
from lakelog.base.config.keys.own import OWN_KEYS, ZOOKEEPER_KEYS
from lakelog.base.config.log_config import LogConfig
from lakelog.base.endpoint import Endpoint, SecurityProtocol, parse_endpoint

BROKER_CONFIGS: Mapping[str, ConfigKey] = key_table(
    NODE_KEYS,
    CONNECTION_KEYS,
    LOG_KEYS,
    CLEANER_KEYS,
    REPLICATION_KEYS,
    GROUP_KEYS,
    CONSUMER_GROUP_KEYS,
    TRANSACTION_KEYS,
    OWN_KEYS,
    ZOOKEEPER_KEYS,
    REJECTED_KEYS,
    INERT_KEYS,
)

IGNORED_PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "zookeeper.": "lakelog.metadata.store names the ensemble",
        "inter.broker.protocol.version": "Kafka 4.0 removed it",
        "log.message.format.version": "Kafka 4.0 removed it",
        "log.message.timestamp.difference.max.ms": "Kafka 4.0 removed it",
        "control.plane.listener.name": "Kafka 4.0 removed it",
        "reserved.broker.max.id": "Kafka 4.0 removed it",
        "listener.name.": "TLS and SASL are not supported",
        "confluent.": "it is a key of Confluent Platform",
        "rlmm.config.": "tiered storage is not supported",
        "rsm.config.": "tiered storage is not supported",
    }
)
"""Prefixes of keys in migrated files that have no effect."""

_PLAINTEXT = SecurityProtocol.PLAINTEXT.name

_DEFAULTS: Mapping[str, ConfigValue] = {
    name: key.default_value for name, key in BROKER_CONFIGS.items()
}


class BrokerConfig:
    """The settings of one broker; immutable.

    `static` and the dynamic layers hold the original text. `forced` are static keys that dynamic
    values do not override.
    """

    __slots__ = ("_values", "dynamic_broker", "dynamic_default", "forced", "static")

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
        *,
        forced: frozenset[str] = frozenset(),
    ) -> None:
        """Raises `ConfigError`. All keys must be in `BROKER_CONFIGS`."""
        self.static = MappingProxyType(dict(static))
        self.forced = forced
        self.dynamic_default = self._unforced(dynamic_default or {})
        self.dynamic_broker = self._unforced(dynamic_broker or {})
        self._values: dict[str, ConfigValue] = {}
        for layer in (self.static, self.dynamic_default, self.dynamic_broker):
            for name, text in layer.items():
                self._values[name] = BROKER_CONFIGS[name].parse(text)
        self._check_together()

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """Return the settings, and a warning for each key without effect. Raises `ConfigError`."""
        settings = {name: text for name, text in values.items() if name in BROKER_CONFIGS}
        warnings = [text for name in values if (text := _warning(name, values[name])) is not None]
        return cls(settings), warnings

    def with_dynamic(
        self, dynamic_default: Mapping[str, str], dynamic_broker: Mapping[str, str]
    ) -> BrokerConfig:
        """Return the same static settings with other dynamic ones. Raises `ConfigError`."""
        return BrokerConfig(self.static, dynamic_default, dynamic_broker, forced=self.forced)

    def with_static(self, values: Mapping[str, str]) -> BrokerConfig:
        """Return the settings with these static values replaced. Raises `ConfigError`."""
        static = {**self.static, **values}
        return BrokerConfig(static, self.dynamic_default, self.dynamic_broker, forced=self.forced)

    def with_forced(self, names: Collection[str]) -> BrokerConfig:
        """Return the static settings, of which `names` precede dynamic ones.

        Raises `ConfigError`.
        """
        return BrokerConfig(self.static, forced=frozenset(names) & self.static.keys())

    def _unforced(self, values: Mapping[str, str]) -> Mapping[str, str]:
        return MappingProxyType({key: values[key] for key in values if key not in self.forced})

    def get(self, name: str) -> ConfigValue:
        """Return the value in force. Raises `KeyError` for an unknown key."""
        return self._values[name] if name in self._values else _DEFAULTS[name]

    def get_int(self, name: str) -> int:
        """Return an integer value. Raises `KeyError` for an unknown key."""
        value = self.get(name)
        assert isinstance(value, int)
        return value

    def get_float(self, name: str) -> float:
        """Return a number. Raises `KeyError` for an unknown key."""
        value = self.get(name)
        assert isinstance(value, float | int)
        return float(value)

    def get_bool(self, name: str) -> bool:
        """Return a boolean value. Raises `KeyError` for an unknown key."""
        value = self.get(name)
        assert isinstance(value, bool)
        return value

    def is_set(self, name: str) -> bool:
        """Return whether the key has a value of its own, even if it equals the default."""
        return name in self._values

    @property
    def node_id(self) -> int:
        """This broker's id: `node.id`, or the older `broker.id`."""
        older = self.get_int("broker.id")
        return older if older >= 0 and not self.is_set("node.id") else self.get_int("node.id")

    @property
    def data_directory(self) -> str | None:
        """`log.dirs`, else `log.dir`, else None."""
        value = self.get("log.dirs") or self.get("log.dir")
        return value[0] if isinstance(value, tuple) and value else None

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The addresses to listen on (`listeners`)."""
        return self._endpoints("listeners")

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The advertised addresses; empty when unset."""
        return self._endpoints("advertised.listeners")

    def _endpoints(self, name: str) -> tuple[Endpoint, ...]:
        value = self.get(name)
        return tuple(map(parse_endpoint, value)) if isinstance(value, tuple) else ()

    def _check_together(self) -> None:
        """Raise `ConfigError` for settings that contradict one another."""
        for name in ("log.dirs", "log.dir"):
            value = self._values.get(name)
            if isinstance(value, tuple) and len(value) > 1:
                raise ConfigError(name, ",".join(value), "only one data folder is supported")
        number = self._values.get("broker.id", -1)
        if number != -1 and self.is_set("node.id") and number != self.get("node.id"):
            raise ConfigError("broker.id", str(number), f"differs from node.id={self.node_id}")
        shortest = self.get_int("group.min.session.timeout.ms")
        if shortest > self.get_int("group.max.session.timeout.ms"):
            raise ConfigError(
                "group.min.session.timeout.ms",
                str(shortest),
                f"above group.max.session.timeout.ms={self.get('group.max.session.timeout.ms')}",
            )
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            if self._values.get(name) == 0:
                raise ConfigError(name, "0", "not allowed; allowed: -1 (no limit), 1 or more")
        check_cleaner_keys(self.get_int)
        check_consumer_group_keys(self.get_int)
        self._check_plaintext()
        LogConfig.from_values({}, self)

    def security_protocol(self, listener_name: str) -> SecurityProtocol:
        """Return the protocol of a listener; PLAINTEXT if it is not one of `listeners`."""
        return SecurityProtocol(self._protocols().get(listener_name, _PLAINTEXT))

    def _protocols(self) -> dict[str, str]:
        """Return the name of the protocol of each of `listeners`."""
        protocols = {endpoint.name: _PLAINTEXT for endpoint in self.listeners}
        value = self.get("listener.security.protocol.map")
        for entry in value if isinstance(value, tuple) else ():
            name, _, protocol = entry.partition(":")
            if name.strip().upper() in protocols:
                protocols[name.strip().upper()] = protocol.strip().upper()
        return protocols

    def _check_plaintext(self) -> None:
        """Raise `ConfigError` if a listener is mapped to another protocol than PLAINTEXT."""
        for name, protocol in self._protocols().items():
            if protocol != _PLAINTEXT:
                raise ConfigError(
                    "listener.security.protocol.map",
                    f"{name}:{protocol}",
                    "only PLAINTEXT listeners are supported",
                )


def _warning(name: str, value: str) -> str | None:
    key = BROKER_CONFIGS.get(name)
    if key is not None:
        same = key.effect is not Effect.NONE or key.parse(value) == key.default_value
        return None if same else f"{name} has no effect: {key.reason}"
    for prefix, reason in IGNORED_PREFIXES.items():
        if name.startswith(prefix):
            return f"{name} has no effect: {reason}"
    close = difflib.get_close_matches(name, BROKER_CONFIGS, n=1, cutoff=0.75)
    return f"unknown key {name} ignored" + (f": did you mean {close[0]}?" if close else "")
