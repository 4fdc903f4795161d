"""The tables of configuration keys against Apache Kafka 4.3.1's own, difference by difference.

A difference that is not listed here with its reason fails, and so does a listed difference that no
longer exists.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import kafka_jars
from conformance.config_differences import DEFAULTS, LOOSER, MODES, NEWER, OLDER, STRICTER, TYPES
from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigError, ConfigKey, ConfigType, Effect
from lakelog.base.config.log_config import TOPIC_CONFIGS

pytestmark = pytest.mark.java

ORACLE = Path(__file__).parent.parent / "java" / "ConfigOracle.java"
PROBES = ("", "-2", "-1", "0", "1", "2", "1024", "9999999999", "0.5", "true", "abc")
TABLES = {"broker": BROKER_CONFIGS, "topic": TOPIC_CONFIGS}


class Row(NamedTuple):
    """What Kafka says of a key; `accepted` has one digit a probe."""

    resource: str
    name: str
    type: str
    default: str
    visibility: str
    mode: str
    synonyms: str
    accepted: str

    @property
    def key(self) -> ConfigKey:
        return TABLES[self.resource][self.name]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    done = subprocess.run(
        kafka_jars.java_command("tools", ORACLE, *PROBES),
        capture_output=True,
        text=True,
        check=True,
    )
    all_rows = [Row(*line.split("\t")) for line in done.stdout.splitlines()]
    return [row for row in all_rows if row.resource in TABLES]


def test_every_key_of_kafka_is_known_and_no_other(rows: list[Row]) -> None:
    for resource, table in TABLES.items():
        theirs = {row.name for row in rows if row.resource == resource}
        assert len(theirs) > 30
        ours = {name for name in table if not name.startswith("lakelog.")} - OLDER
        assert ours == theirs | NEWER[resource]


def test_types_defaults_and_modes(rows: list[Row]) -> None:
    types, defaults, modes = set(), set(), set()
    for row in rows:
        if row.key.type.name != row.type:
            types.add(row.name)
        if ("[null]" if row.key.default is None else row.key.default) != row.default:
            defaults.add(row.name)
        if row.resource == "broker" and row.key.update_mode.value != row.mode:
            modes.add(row.name)
        assert row.key.internal == (row.visibility == "internal"), row.name
    assert types == TYPES.keys()
    assert defaults == DEFAULTS.keys()
    assert modes == MODES.keys()


def test_a_topic_key_has_the_same_broker_keys_behind_it(rows: list[Row]) -> None:
    for row in rows:
        assert ",".join(synonym.name for synonym in row.key.synonyms) == row.synonyms, row.name


def test_values_are_taken_and_refused_alike(rows: list[Row]) -> None:
    """A refused key takes its default only, and no Java class is looked for."""
    stricter: set[str] = set()
    looser: set[str] = set()
    for row in rows:
        if row.key.effect is Effect.REFUSED or row.key.type is ConfigType.CLASS:
            continue
        for probe, digit in zip(PROBES, row.accepted, strict=True):
            ours = _accepts(row.key, probe)
            if ours != (digit == "1"):
                (looser if ours else stricter).add(row.name)
    assert stricter == STRICTER.keys()
    assert looser == LOOSER.keys()


def _accepts(key: ConfigKey, text: str) -> bool:
    try:
        key.parse(text)
    except ConfigError:
        return False
    return True


def test_the_lists_of_differences_give_reasons() -> None:
    lists: tuple[Mapping[str, str], ...] = (DEFAULTS, TYPES, MODES, STRICTER, LOOSER)
    assert all(reason for differences in lists for reason in differences.values())
