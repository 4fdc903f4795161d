"""The tables of configuration keys against Apache Kafka 4.3.1's own, difference by difference.

A difference that is not listed here with its reason fails, and so does one that is listed and has
gone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import kafka_jars
from lakelog.base.broker_config import BROKER_CONFIGS
from lakelog.base.config import ConfigError, ConfigKey, ConfigType, Effect
from lakelog.base.topic_config import TOPIC_CONFIGS

pytestmark = pytest.mark.java

ORACLE = Path(__file__).parent.parent / "java" / "ConfigOracle.java"
PROBES = ("", "-2", "-1", "0", "1", "2", "1024", "9999999999", "0.5", "true", "abc")
TABLES = {"broker": BROKER_CONFIGS, "topic": TOPIC_CONFIGS}

NEWER = {
    "topic": {
        "errors.deadletterqueue.group.enable",
        "max.decompressed.message.bytes",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
    },
    "broker": {"max.decompressed.message.bytes", "super.users"},
}
"""Keys of Kafka 4.4, and one that is its authorizer's."""

ONE_NODE = "one node is a whole cluster"
NO_JAVA = "a Java class that does not run here"
LOOPBACK = "nothing beyond loopback, and no TLS or SASL"
DEFAULTS = {
    "group.share.persister.class.name": NO_JAVA,
    "listener.security.protocol.map": LOOPBACK,
    "listeners": LOOPBACK,
    "log.dir": "no data folder is guessed",
    "metric.reporters": NO_JAVA,
    "node.id": ONE_NODE,
    "offsets.topic.replication.factor": ONE_NODE,
    "principal.builder.class": NO_JAVA,
    "process.roles": ONE_NODE,
    "remote.log.metadata.manager.class.name": NO_JAVA,
    "sasl.oauthbearer.jwt.retriever.class": NO_JAVA,
    "sasl.oauthbearer.jwt.validator.class": NO_JAVA,
    "socket.listen.backlog.size": "one loop accepts between its other work",
    "share.coordinator.state.topic.min.isr": ONE_NODE,
    "share.coordinator.state.topic.replication.factor": ONE_NODE,
    "transaction.state.log.min.isr": ONE_NODE,
    "transaction.state.log.replication.factor": ONE_NODE,
}
TYPES = {"listener.security.protocol.map": "its entries are checked one by one"}
MODES = {
    "config.providers": "refused altogether",
    "listener.security.protocol.map": "listeners are fixed at the start",
    "listeners": "listeners are fixed at the start",
}
STRICTER = {
    "advertised.listeners": LOOPBACK,
    "default.replication.factor": "Kafka fails later, when a topic is created",
    "group.initial.rebalance.delay.ms": "a negative time has no meaning",
    "group.max.session.timeout.ms": "a session of no length has no meaning",
    "group.min.session.timeout.ms": "a session of no length has no meaning",
    "internal.segment.bytes": "a segment of no size has no meaning",
    "listeners": LOOPBACK,
    "log.flush.interval.ms": "the topic key's own bound",
    "log.flush.scheduler.interval.ms": "the topic key's own bound",
    "log.roll.jitter.ms": "the topic key's own bound",
    "log.roll.ms": "the topic key's own bound",
    "max.connections.per.ip": "nobody could connect",
    "offset.metadata.max.bytes": "a negative size has no meaning",
    "replica.high.watermark.checkpoint.interval.ms": "a negative time has no meaning",
}
LOOSER = {
    "controller.listener.names": "no effect",
    "controller.quorum.bootstrap.servers": "no effect",
    "controller.quorum.voters": "no effect",
    "group.consumer.assignors": "no effect",
    "group.consumer.migration.policy": "no effect",
    "group.coordinator.rebalance.protocols": "no effect",
    "group.share.assignors": "no effect",
    "log.dir": "unset and empty are one",
    "log.dirs": "unset and empty are one",
    "remote.log.metadata.manager.class.name": "no effect",
    "remote.log.metadata.manager.impl.prefix": "no effect",
    "remote.log.metadata.manager.listener.name": "no effect",
    "remote.log.storage.manager.class.name": "no effect",
    "remote.log.storage.manager.impl.prefix": "no effect",
}


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
        assert table.keys() == theirs | NEWER[resource]


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
    stricter, looser = set(), set()
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
