"""Administration beyond topics and groups, by confluent-kafka, kafka-python and Java's tools."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType

from clients.adapters.patient import own_admin, patiently
from kafka_jars import java_command
from waiting import eventually
from wire_client import (
    PRODUCE_VERSION,
    WireClient,
    ask_leader,
    batch_of,
    described,
    produce_request,
)

TIMEOUT_S = 180


@pytest.fixture
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def python(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(patiently(lambda: KafkaAdminClient(bootstrap_servers=bootstrap))) as admin:
        yield admin


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"administration-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, 2)
    return name


def _java(bootstrap: str, main: str, *arguments: str) -> str:
    def run() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(
            java_command("tools", main, "--bootstrap-server", bootstrap, *arguments),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        # The tool for reassignments refuses brokers that restart.
        return None if "Unknown broker id" in done.stdout + done.stderr else done

    done = eventually(run)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _settings(confluent: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = confluent.describe_configs([resource])[resource].result(TIMEOUT_S)
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in entries.items() if entry.source == source}


def test_the_older_request_replaces_every_setting(confluent: AdminClient, topic: str) -> None:
    def alter(**settings: str) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=settings)
        with pytest.warns(DeprecationWarning):
            confluent.alter_configs([resource])[resource].result(TIMEOUT_S)

    alter(**{"retention.ms": "5000000", "flush.messages": "9"})
    alter(**{"retention.ms": "6000000"})
    assert eventually(lambda: _settings(confluent, topic)) == {"retention.ms": "6000000"}


def test_kafka_python_alters_and_describes(python: KafkaAdminClient, topic: str) -> None:
    for incremental, key in ((True, "retention.ms"), (False, "segment.ms")):
        resource = PythonResource(ConfigResourceType.TOPIC, topic, configs={key: "5000000"})
        patiently(partial(python.alter_configs, [resource], incremental=incremental))
    asked = [PythonResource(ConfigResourceType.TOPIC, topic)]
    found: Any = patiently(lambda: python.describe_configs(asked, config_filter="all"))
    printed = json.dumps(found, default=str)
    assert '"segment.ms"' in printed
    assert "5000000" in printed


def test_a_list_grows_by_one_item(confluent: AdminClient, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    confluent.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    changed = eventually(lambda: _settings(confluent, topic))
    assert changed == {"cleanup.policy": "delete,compact"}


def test_no_election_is_needed(
    confluent: AdminClient, python: KafkaAdminClient, topic: str, leaders_move: bool
) -> None:
    """Unless the preferred leader has just returned, or is down."""
    expected = {KafkaError.ELECTION_NOT_NEEDED}
    if leaders_move:
        expected |= {KafkaError.NO_ERROR, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        results = confluent.elect_leaders(kind, asked).result(TIMEOUT_S)
        codes = {at.partition: error.code() if error else 0 for at, error in results.items()}
        assert codes[0] in expected
        assert codes[9] == KafkaError.UNKNOWN_TOPIC_OR_PART
    found = str(patiently(lambda: python.elect_leaders(0, {topic: [0]}, raise_errors=False)))
    assert any(f"error_code={code}" in found for code in expected), found


def test_topics_are_described_in_pages(python: KafkaAdminClient, topic: str) -> None:
    found: Any = patiently(
        lambda: python.describe_topic_partitions([topic], response_partition_limit=1)
    )
    assert topic in str(found)


@pytest.mark.java
def test_kafkas_reassignment_and_election_tools(
    bootstrap: str, topic: str, tmp_path: Path, leaders_move: bool
) -> None:
    with WireClient(bootstrap) as wire:
        replicas = list(described(wire, topic).partitions[0].replica_nodes)
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": replicas}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    file = ("--reassignment-json-file", str(plan))
    started = _java(bootstrap, tool, *file, "--execute", "--throttle", "1000000")
    assert "Successfully started partition reassignment" in started
    verified = _java(bootstrap, tool, *file, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "No partition reassignments found." in _java(bootstrap, tool, "--list")

    elected = _java(
        bootstrap,
        "org.apache.kafka.tools.LeaderElectionCommand",
        *("--election-type", "preferred", "--topic", topic, "--partition", "0"),
    )
    if not leaders_move:
        assert "Valid replica already elected for partitions" in elected


@pytest.mark.java
def test_kafkas_config_tool_changes_brokers(bootstrap: str, topic: str) -> None:
    def configs(*arguments: str) -> str:
        return _java(bootstrap, "kafka.admin.ConfigCommand", *arguments)

    of_all = ("--entity-type", "brokers", "--entity-default")
    configs("--alter", *of_all, "--add-config", "message.max.bytes=500")
    try:
        assert "message.max.bytes=500 sensitive=false" in configs("--describe", *of_all)
        assert eventually(_error_of_produce(bootstrap, topic)) == KafkaError.MSG_SIZE_TOO_LARGE
    finally:
        configs("--alter", *of_all, "--delete-config", "message.max.bytes")
    error_of_produce = _error_of_produce(bootstrap, topic)
    eventually(lambda: error_of_produce() == 0)


def _error_of_produce(bootstrap: str, topic: str) -> Callable[[], int]:
    request = produce_request(topic, batch_of(b"x" * 600))
    return lambda: ask_leader(bootstrap, topic, 0, request, PRODUCE_VERSION).error_code
