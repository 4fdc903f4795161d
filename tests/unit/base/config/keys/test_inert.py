"""Keys without effect are declared with Kafka's types and bounds, so that typing errors show."""

from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigError, ConfigType, Effect, UpdateMode
from lakelog.base.config.keys.inert import INERT_KEYS

BY_NAME = {key.name: key for key in INERT_KEYS}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("connection.failed.authentication.delay.ms", "0", "-1"),
        ("delegation.token.expiry.time.ms", "1", "0"),
        ("ssl.client.auth", "requested", "maybe"),
        ("remote.log.manager.task.retry.jitter", "0.5", "0.51"),
        ("unstable.api.versions.enable", "true", "yes"),
        ("sasl.login.refresh.buffer.seconds", "32767", "32768"),
    ],
)
def test_a_value_is_checked_although_it_has_no_effect(name: str, good: str, bad: str) -> None:
    BY_NAME[name].parse(good)
    with pytest.raises(ConfigError, match=name):
        BY_NAME[name].parse(bad)


def test_each_key_has_a_reason_and_no_effect() -> None:
    assert all(key.reason and key.effect is Effect.NONE for key in INERT_KEYS)
    assert BY_NAME.keys() <= BROKER_CONFIGS.keys()


def test_null_and_an_empty_list_are_different_defaults() -> None:
    assert BY_NAME["sasl.login.class"].default is None
    assert BY_NAME["ssl.cipher.suites"].default_value == ()


def test_secrets_and_scopes_are_as_in_kafka() -> None:
    key = BY_NAME["ssl.keystore.password"]
    assert (key.sensitive, key.type, key.update_mode) == (
        True,
        ConfigType.PASSWORD,
        UpdateMode.PER_BROKER,
    )
    assert BY_NAME["ssl.principal.mapping.rules"].update_mode is UpdateMode.READ_ONLY


def test_internal_keys_of_kafka_are_marked() -> None:
    assert BY_NAME["unstable.api.versions.enable"].internal
    assert not BY_NAME["ssl.cipher.suites"].internal


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("security.inter.broker.protocol", "SSL"),
    ],
)
def test_a_key_that_would_be_missed_is_refused_with_a_reason(name: str, text: str) -> None:
    """To ignore it silently would leave the data unprotected."""
    key = BROKER_CONFIGS[name]
    with pytest.raises(ConfigError, match=f"{name}="):
        key.parse(text)
    assert key.effect is not Effect.NONE
