"""Settings in DescribeConfigs: value, source, synonyms, type, and whether they may change."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from conformance.config_differences import DEFAULTS, MODES, NEWER, OLDER, TYPES
from conformance.pair import Pair
from kafka_process import PROPERTIES
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from waiting import eventually
from wire_client import WireClient, create_topic

pytestmark = pytest.mark.java

TOPIC, BROKER = 2, 4
NAME = "conformance-described"
SETTINGS = [
    (BROKER, "", "message.max.bytes", "2000000"),
    (BROKER, "1", "message.max.bytes", "3000000"),
    (BROKER, "", "log.retention.ms", "5000000"),
    (BROKER, "1", "log.cleaner.threads", "2"),
    (TOPIC, NAME, "segment.ms", "7000000"),
]
ELIGIBLE_REPLICAS = {"min.insync.replicas"}
"""Kafka fixes it in the cluster when it keeps eligible leader replicas (KIP-966)."""
THROTTLES = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Kafka shows them only where they are set."""
GIVEN_AT_THE_START = {line.partition("=")[0] for line in PROPERTIES.splitlines()}
KNOWN = (
    ELIGIBLE_REPLICAS
    | THROTTLES
    | GIVEN_AT_THE_START
    | DEFAULTS.keys()
    | TYPES.keys()
    | MODES.keys()
    | NEWER["topic"]
    | NEWER["broker"]
    | {"broker.id", "node.id"}
)


class Described(NamedTuple):
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    type: int
    synonyms: tuple[tuple[str, str | None, int], ...]
    documented: bool


def _alter(client: WireClient, kind: int, name: str, key: str, value: str) -> None:
    change = IncrementalConfig(name=key, config_operation=0, value=value)
    resource = IncrementalResource(resource_type=kind, resource_name=name, configs=[change])
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0, result


def _described(client: WireClient, kind: int, name: str) -> dict[str, Described]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = client.call(request, 4).results
    assert result.error_code == 0
    return {row.name: _row(row) for row in result.configs}


def _row(row: Any) -> Described:
    return Described(
        row.value,
        row.config_source,
        row.read_only,
        row.is_sensitive,
        row.config_type,
        tuple((item.name, item.value, item.source) for item in row.synonyms),
        bool(row.documentation),
    )


def _world(address: str) -> dict[tuple[int, str], dict[str, Described]]:
    with WireClient(address) as client:
        create_topic(client, NAME, 1, {"retention.ms": "1000000", "cleanup.policy": "compact"})
        for setting in SETTINGS:
            _alter(client, *setting)
        eventually(
            lambda: _described(client, BROKER, "1")["log.cleaner.threads"].value == "2",
            what="the last setting of a broker",
        )
        return {
            resource: _described(client, *resource)
            for resource in ((TOPIC, NAME), (BROKER, "1"), (BROKER, ""))
        }


@pytest.fixture(scope="module")
def worlds(pair: Pair) -> tuple[Any, Any]:
    return _world(pair.ours), _world(pair.kafka)


def _is_own(key: str) -> bool:
    return key.startswith("lakelog.") or key in OLDER


@pytest.mark.parametrize("resource", [(TOPIC, NAME), (BROKER, "1"), (BROKER, "")])
def test_a_resource_is_described_as_kafka_does(
    worlds: tuple[Any, Any], resource: tuple[int, str]
) -> None:
    ours, kafka = worlds[0][resource], worlds[1][resource]
    compared = {key for key in ours.keys() | kafka.keys() if key not in KNOWN and not _is_own(key)}
    assert compared
    differences = {
        key: (ours.get(key), kafka.get(key)) for key in compared if ours.get(key) != kafka.get(key)
    }
    assert differences == {}


def test_the_layers_are_there(worlds: tuple[Any, Any]) -> None:
    for world in worlds:
        size = world[TOPIC, NAME]["max.message.bytes"]
        assert size.value == "3000000"
        assert [value for _, value, _ in size.synonyms] == ["3000000", "2000000", "1048588"]
        assert world[BROKER, ""]["message.max.bytes"].value == "2000000"
