from __future__ import annotations

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.settings import parse_changes, parse_settings


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
