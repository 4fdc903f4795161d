"""A configuration key: its type, default, bounds, effect, and whether it can change at run time.

Values arrive as text (files, command lines, the wire) and become typed values. Parsing,
DescribeConfigs, AlterConfigs and docs/configuration.md use the same tables, so a key is declared
once. The types have the numbers of DescribeConfigs; parsing follows
`org.apache.kafka.common.config.ConfigDef`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

ConfigValue = bool | int | float | str | tuple[str, ...] | None

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_SHOWN_CHARS_MAX = 80


class ConfigType(IntEnum):
    """The type of a value: `config_type` of DescribeConfigs, version 3 and newer."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class UpdateMode(Enum):
    """The scope of changes of a broker key while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Effect(Enum):
    """The effect of a key in lakelog."""

    HONOURED = "honoured"
    NONE = "accepted without effect"
    REFUSED = "refused"


class ConfigError(ValueError):
    """A value that cannot be used. The text names the key, the value and the allowed values."""

    def __init__(self, key: str, value: str, reason: str) -> None:
        super().__init__(f"{key}={value}: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


class Validator(NamedTuple):
    """A bound beyond the type. `allowed` describes the allowed values in messages."""

    accepts: Callable[[ConfigValue], bool]
    allowed: str


class Synonym(NamedTuple):
    """A broker key that supplies a topic key's default, in units of `factor`."""

    name: str
    factor: int = 1


class ConfigKey(NamedTuple):
    """One key. `default` is text as a file would hold it; None is null.

    `synonyms` come in order of precedence. `reason` says why a key has no effect or is refused.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    importance: str = "medium"
    synonyms: tuple[Synonym, ...] = ()
    effect: Effect = Effect.HONOURED
    reason: str = ""
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, which is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return self.validator.allowed if self.validator else _allowed_by_type(self.type)

    @property
    def default_value(self) -> ConfigValue:
        """The default, parsed."""
        return None if self.default is None else self._parse(self.default)

    def parse(self, text: str) -> ConfigValue:
        """Return the typed value. Raises `ConfigError`."""
        value = self._parse(text)
        if self.effect is Effect.REFUSED and value != self.default_value and value not in ("", ()):
            raise self._error(text, f"refused: {self.reason}")
        return value

    def _parse(self, text: str) -> ConfigValue:
        try:
            value = _parse_type(self.type, text.strip())
        except ValueError as error:
            raise self._error(text, f"{error}; allowed: {self.allowed}") from None
        if self.validator is not None and not self.validator.accepts(value):
            raise self._error(text, f"not allowed; allowed: {self.allowed}")
        return value

    def _error(self, text: str, reason: str) -> ConfigError:
        shown = text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."
        return ConfigError(self.name, "[hidden]" if self.sensitive else shown, reason)


def key_table(*groups: tuple[ConfigKey, ...]) -> Mapping[str, ConfigKey]:
    """Return the keys by name; two keys of one name are a programmer's error."""
    keys = [key for group in groups for key in group]
    table = {key.name: key for key in keys}
    assert len(table) == len(keys)
    return table


def at_least(low: int) -> Validator:
    """Return a check for numbers from `low` on."""
    return Validator(lambda value: _is_number(value, low, math.inf), f"{low} or more")


def between(low: float, high: float) -> Validator:
    """Return a check for numbers from `low` to `high`, inclusive."""
    return Validator(lambda value: _is_number(value, low, high), f"{low} to {high}")


def between_or(low: int, high: int, other: int) -> Validator:
    """Return a check for numbers from `low` to `high`, inclusive, or `other`."""
    return Validator(
        lambda value: value == other or _is_number(value, low, high), f"{low} to {high}, or {other}"
    )


def one_of(*choices: str) -> Validator:
    """Return a check for one of the choices."""
    return Validator(lambda value: value in choices, ", ".join(choices))


def list_of(*choices: str) -> Validator:
    """Return a check for a list of the choices."""

    def accepts(value: ConfigValue) -> bool:
        return isinstance(value, tuple) and set(value) <= set(choices)

    return Validator(accepts, f"a comma-separated list of {', '.join(choices)}")


def _is_number(value: ConfigValue, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


def _allowed_by_type(config_type: ConfigType) -> str:
    if config_type in _BITS:
        return f"a whole number of {_BITS[config_type]} bits"
    return {
        ConfigType.BOOLEAN: "true, false",
        ConfigType.DOUBLE: "a number",
        ConfigType.LIST: "a comma-separated list",
    }.get(config_type, "text")


def _parse_type(config_type: ConfigType, text: str) -> ConfigValue:
    if config_type is ConfigType.BOOLEAN:
        return _parse_boolean(text)
    if config_type in _BITS:
        return _parse_whole(text, _BITS[config_type])
    if config_type is ConfigType.DOUBLE:
        return _parse_double(text)
    if config_type is ConfigType.LIST:
        return tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
    return text


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("neither true nor false")
    return lowered == "true"


def _parse_whole(text: str, bits: int) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("not a whole number")
    value = int(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"does not fit in {bits} bits")
    return value


def _parse_double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("not a number") from None
    if math.isnan(value):
        raise ValueError("not a number")
    return value
