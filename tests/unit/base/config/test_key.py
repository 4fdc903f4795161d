from __future__ import annotations

import pytest

from lakelog.base.config.key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    Effect,
    at_least,
    key_table,
    list_of,
)


def _key(kind: ConfigType, **more: object) -> ConfigKey:
    return ConfigKey("some.key", kind, None, "", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.INT, "+7", 7),
        (ConfigType.LONG, "-9223372036854775808", -(1 << 63)),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.LIST, " delete , compact,delete", ("delete", "compact")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " x ", "x"),
    ],
)
def test_a_value_is_parsed_as_java_would(kind: ConfigType, text: str, value: object) -> None:
    assert _key(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "1"),
        (ConfigType.INT, "1_0"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "1.0"),
        (ConfigType.LONG, ""),
        (ConfigType.INT, "\u0661"),
        (ConfigType.DOUBLE, "NaN"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_a_value_of_the_wrong_type_is_rejected(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"some\.key=.*allowed: "):
        _key(kind).parse(text)


def test_the_error_of_a_value_out_of_bounds_names_the_allowed_values() -> None:
    with pytest.raises(ConfigError, match=r"some\.key=0: not allowed; allowed: 1 or more"):
        _key(ConfigType.INT, validator=at_least(1)).parse("0")


def test_a_list_with_unknown_items_is_rejected() -> None:
    with pytest.raises(ConfigError, match="list of compact, delete"):
        _key(ConfigType.LIST, validator=list_of("compact", "delete")).parse("delete,shred")


def test_a_refused_key_accepts_only_its_default() -> None:
    key = _key(ConfigType.STRING, effect=Effect.REFUSED, reason="there is none")
    assert key.parse("") == ""
    with pytest.raises(ConfigError, match="refused: there is none"):
        key.parse("x")


def test_a_secret_is_never_repeated() -> None:
    key = _key(ConfigType.PASSWORD, effect=Effect.REFUSED, reason="no")
    with pytest.raises(ConfigError) as caught:
        key.parse("hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        _key(ConfigType.INT).parse("x" * 10_000)
    assert len(str(caught.value)) < 250


def test_a_key_declared_twice_is_a_mistake() -> None:
    key = _key(ConfigType.INT)
    with pytest.raises(AssertionError):
        key_table((key,), (key,))
