from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigError

LISTENERS = BROKER_CONFIGS["listeners"]


@pytest.mark.parametrize(
    "text",
    [
        "PLAINTEXT://:9092",
        "PLAINTEXT://0.0.0.0:9092, CONTROLLER://:9093",
        "INSIDE://[::1]:0",
    ],
)
def test_unprotected_listeners_of_different_names_are_allowed(text: str) -> None:
    LISTENERS.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9092",
        "SSL://:9093",
        "SASL_PLAINTEXT://:9093",
        "PLAINTEXT://:9092,SASL_SSL://:9093",
        "PLAINTEXT://:9092,PLAINTEXT://:9093",
        "PLAINTEXT://:65536",
    ],
)
def test_a_listener_that_would_not_be_protected_or_found_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"PLAINTEXT://HOST:PORT \(no TLS, no SASL yet\)"):
        LISTENERS.parse(text)


def test_a_role_without_the_broker_is_rejected() -> None:
    BROKER_CONFIGS["process.roles"].parse("controller,broker")
    with pytest.raises(ConfigError):
        BROKER_CONFIGS["process.roles"].parse("controller")
