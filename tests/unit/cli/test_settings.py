from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.failures import CliError
from lakelog.cli.settings import check_known, parse_changes, parse_settings, refusal, source_name
from lakelog.client.admin import ResourceType


def test_a_change_sets_and_unsets() -> None:
    changes = parse_changes(["retention.ms=7d"], "--config", ["segment.bytes", "segment.bytes"])
    assert changes == {"retention.ms": "604800000", "segment.bytes": None}


def test_a_key_cannot_be_set_and_unset_at_once() -> None:
    with pytest.raises(CliError, match=r"--unset retention\.ms contradicts retention\.ms=1000"):
        parse_changes(["retention.ms=1s"], "--config", ["retention.ms"])


def test_a_key_has_one_value() -> None:
    assert parse_settings(["retention.ms=1s", "retention.ms=1000"], "--config") == {
        "retention.ms": "1000"
    }
    with pytest.raises(CliError, match=r"'retention\.ms' has two values: 1000 and 2000"):
        parse_settings(["retention.ms=1s", "retention.ms=2s"], "--config")


@pytest.mark.parametrize(
    ("kind", "key", "hint"),
    [
        (ResourceType.BROKER, "table.enable", "is a setting of topics: use --topic NAME"),
        (ResourceType.GROUP, "retention.ms", "is a setting of topics: use --topic NAME"),
        (ResourceType.BROKER, "consumer.session.timeout.ms", "setting of groups: use --group NAME"),
        (ResourceType.TOPIC, "segment.mss", "did you mean 'segment.ms'?"),
        (ResourceType.TOPIC, "xyz", "use lakelog config get --topic orders --all to list"),
    ],
)
def test_a_key_of_another_owner_is_named(kind: ResourceType, key: str, hint: str) -> None:
    with pytest.raises(CliError) as error:
        known = ["consumer.session.timeout.ms"] if kind is ResourceType.GROUP else ["segment.ms"]
        check_known(kind, "orders", [key], known)
    assert hint in error.value.hint


def test_a_change_that_the_broker_rejects_names_the_owner_of_the_key() -> None:
    known = {"log.cleaner.enable": None, "log.retention.ms": None}
    admin: Any = SimpleNamespace(configs=SimpleNamespace(describe=lambda *_: known))
    hints = {
        "table.enable": "table.enable is a setting of topics: use --topic NAME",
        "retention.ms": "retention.ms is a setting of topics: use --topic NAME, "
        "or log.retention.ms for all topics",
        "log.retention.mss": "did you mean 'log.retention.ms'?",
        "log.retention.ms": "",
    }
    for key, hint in hints.items():
        rejected = KafkaError(ErrorCode.INVALID_REQUEST, f"unknown broker configuration {key}")
        error = refusal(admin, ResourceType.BROKER, "1", [key], rejected)
        assert isinstance(error, CliError)
        assert error.hint == hint


def test_a_source_has_one_spelling() -> None:
    assert source_name("DYNAMIC_DEFAULT_BROKER") == "dynamic-default-broker"
