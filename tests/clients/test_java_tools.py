"""Apache Kafka's own command-line tools, which are thin layers over its Java clients."""

from __future__ import annotations

import json
import re
import subprocess
import uuid

import pytest

from broker_process import LAKELOG
from clients.adapters.api import Sent
from clients.adapters.confluent import Confluent
from kafka_jars import java_command
from waiting import eventually

pytestmark = pytest.mark.java

TOOLS = "org.apache.kafka.tools"
TIMEOUT_S = 180


class Tools:
    """Runs one tool at a time; its standard output, if it succeeds."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, main: str, *arguments: str, stdin: str = "") -> str:
        done = self.run(main, *arguments, stdin=stdin)
        assert done.returncode == 0, f"{main} {arguments}: {done.stdout}{done.stderr}"
        assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout

    def run(self, main: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            java_command("tools", main, "--bootstrap-server", self._bootstrap, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def topics(self, *arguments: str) -> str:
        return self(f"{TOOLS}.TopicCommand", *arguments)

    def create(self, topic: str, partitions: int, *arguments: str) -> None:
        """Create a topic.

        The tool repeats a request whose controller ends, and may then find the topic of the first.
        """
        count = str(partitions)
        self.topics(
            *("--create", "--if-not-exists", "--topic", topic, "--partitions", count), *arguments
        )

    def groups(self, *arguments: str) -> str:
        return self(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self("kafka.admin.ConfigCommand", *arguments)

    def consume(self, topic: str, count: int, *arguments: str) -> list[list[str]]:
        """Partition, offset, headers, key and value of each record, sorted."""
        shown = ("partition", "offset", "headers", "key")
        options = [f"--formatter-property=print.{part}=true" for part in shown]
        printed = self(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--topic", topic, "--max-messages", str(count), "--timeout-ms", "90000"),
            *options,
            *arguments,
        )
        return sorted(line.split("\t") for line in printed.splitlines())


@pytest.fixture
def tools(bootstrap: str) -> Tools:
    return Tools(bootstrap)


@pytest.fixture
def topic() -> str:
    return f"java-{uuid.uuid4().hex[:8]}"


def _rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line.strip()]


def test_topic_and_config_tools(tools: Tools, topic: str) -> None:
    tools.create(topic, 2, "--config", "retention.ms=9000")
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    changes = ("--add-config", "max.message.bytes=5000", "--delete-config", "retention.ms")
    tools.configs("--alter", *of_topic, *changes)

    described = tools.topics("--describe", "--topic", topic)
    assert re.search(r"TopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: \d", described)
    row = r"Partition: \d\tLeader: \d+\tReplicas: [\d,]+\tIsr: [\d,]+"
    assert len(re.findall(row, described)) == 3
    configured = tools.configs("--describe", *of_topic)
    assert "max.message.bytes=5000 sensitive=false" in configured
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000" in configured
    assert "retention.ms" not in configured

    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").split()


@pytest.mark.moving
def test_console_producer_and_consumer(tools: Tools, topic: str) -> None:
    tools.create(topic, 1)
    parsing = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    tools(
        f"{TOOLS}.ConsoleProducer",
        *("--topic", topic, "--compression-codec", "zstd"),
        *(f"--reader-property={option}" for option in parsing),
        stdin="h1:a,h2:b\tkey 1\tvalue 1\nh1:c\tkey 2\t\nNULL\tNULL\tvalue 3\n",
    )

    assert tools.consume(topic, 3, "--from-beginning") == [
        ["Partition:0", "Offset:0", "h1:a,h2:b", "key 1", "value 1"],
        ["Partition:0", "Offset:1", "h1:c", "key 2", ""],
        ["Partition:0", "Offset:2", "NO_HEADERS", "null", "value 3"],
    ]


def test_group_log_dir_and_offset_tools(tools: Tools, topic: str, bootstrap: str) -> None:
    tools.create(topic, 2)
    sent = [Sent(b"%d" % i, partition=i % 2) for i in range(20)]
    Confluent(bootstrap).produce(topic, sent, idempotent=True)
    in_group = ("--group", topic)
    assert len(tools.consume(topic, 20, *in_group, "--from-beginning")) == 20

    described = _rows(tools.groups("--describe", *in_group))
    assert sorted(row[:6] for row in described[1:]) == [
        [topic, topic, str(index), "10", "10", "0"] for index in range(2)
    ]
    assert [topic, "Empty"] in _rows(tools.groups("--list", "--state"))
    to_three = ("--reset-offsets", "--to-offset", "3", "--topic", topic, "--execute")
    tools.groups(*in_group, *to_three)
    again = tools.consume(topic, 14, *in_group)
    assert {row[1] for row in again} == {f"Offset:{offset}" for offset in range(3, 10)}

    latest = tools(f"{TOOLS}.GetOffsetShell", "--topic", topic, "--time", "-1")
    assert latest.split() == [f"{topic}:0:10", f"{topic}:1:10"]
    printed = tools(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", topic)
    brokers = json.loads(printed.splitlines()[-1])["brokers"]
    assert brokers
    for broker in brokers:
        (directory,) = broker["logDirs"]
        sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
        assert sizes.keys() == {f"{topic}-0", f"{topic}-1"}
        assert min(sizes.values()) > 100


def test_the_consumer_protocol(tools: Tools, topic: str, bootstrap: str) -> None:
    """KIP-848 by Java's consumer, and what its tools say of the group and do to it."""
    tools.create(topic, 2)
    sent = [Sent(b"%d" % i, partition=i % 2) for i in range(20)]
    Confluent(bootstrap).produce(topic, sent, idempotent=True)
    in_group = ("--group", topic)
    protocol = ("--command-property", "group.protocol=consumer")
    assert len(tools.consume(topic, 20, *in_group, *protocol, "--from-beginning")) == 20

    assert [topic, "Consumer"] in _rows(tools.groups("--list", "--type"))
    state = _rows(tools.groups("--describe", "--state", *in_group))
    assert state[-1][0] == topic
    assert {"uniform", "Empty", "0"} <= set(state[-1])
    offsets = _rows(tools.groups("--describe", "--offsets", *in_group))
    assert sorted(row[1:6] for row in offsets[1:]) == [
        [topic, str(index), "10", "10", "0"] for index in range(2)
    ]
    tools.groups("--delete-offsets", *in_group, "--topic", f"{topic}:1")
    again = tools.consume(topic, 10, *in_group, *protocol, "--from-beginning")
    assert {row[0] for row in again} == {"Partition:1"}
    tools.groups("--delete", *in_group)
    assert topic not in tools.groups("--list")


def test_group_configs(tools: Tools, topic: str) -> None:
    of_group = ("--entity-type", "groups", "--entity-name", topic)
    tools.configs("--alter", *of_group, "--add-config", "consumer.session.timeout.ms=50000")
    configured = tools.configs("--describe", *of_group)
    assert "consumer.session.timeout.ms=50000" in configured
    refused = tools.run(
        "kafka.admin.ConfigCommand",
        *("--alter", *of_group, "--add-config", "consumer.session.timeout.ms=7"),
    )
    assert "45000 to 60000" in refused.stdout + refused.stderr


def test_api_versions_tool(tools: Tools) -> None:
    printed = eventually(lambda: _versions(tools), TIMEOUT_S)
    usable = dict(re.findall(r"(\w+)\(\d+\): (?:\d+ to )?(\d+) \[usable", printed))
    assert (usable["Produce"], usable["Fetch"], usable["ListOffsets"]) == ("13", "18", "11")


def _versions(tools: Tools) -> str:
    """Return the output of the tool, or nothing if a broker was down at that moment."""
    done = tools.run(f"{TOOLS}.BrokerApiVersionsCommand")
    return "" if done.returncode or "Exception" in done.stdout else done.stdout


def test_an_unknown_topic_is_explained(tools: Tools, topic: str) -> None:
    done = tools.run(f"{TOOLS}.TopicCommand", "--describe", "--topic", topic)
    assert done.returncode == 1
    assert f"Topic '{topic}' does not exist as expected" in done.stdout + done.stderr


def test_feature_levels_are_shown_as_lakelog_shows_them(bootstrap: str, tools: Tools) -> None:
    main = f"{TOOLS}.FeatureCommand"
    described = re.findall(
        r"Feature: (\S+)\s+SupportedMinVersion: (\d+)\s+SupportedMaxVersion: (\d+)\s+"
        r"FinalizedVersionLevel: (\d+)",
        tools(main, "describe"),
    )
    shown = subprocess.run(
        [LAKELOG, "cluster", "features", "-f", "json", "-b", bootstrap],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    rows = json.loads(shown.stdout)
    assert described == [
        (row["feature"], str(row["lowest"]), str(row["highest"]), str(row["level"])) for row in rows
    ]
    lower = ("--feature", "transaction.version=1", "--dry-run")
    assert "transaction.version can be downgraded to 1" in tools(main, "downgrade", *lower)
    refused = tools.run(main, "upgrade", *lower)
    assert refused.returncode and "needs the upgrade type of a downgrade" in refused.stdout
