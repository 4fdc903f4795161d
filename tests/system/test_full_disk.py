"""The file system of the data folder is full, and has space again: a real broker on 8 MiB."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientFailure
from confluent_kafka import KafkaException as ClientException

from broker_process import LAKELOG, BrokerProcess
from small_disk import SmallDisk, SmallDiskBroker
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, described, fetch, produce

SIZE = 8 << 20
PARTITIONS = 3
TOPIC = "narrow"
STORAGE_ERROR = 56
PATIENCE_S = 120.0
"""For a command to end, which it does by its own time-out, or to be refused in certain words."""


class WatchedBroker(SmallDiskBroker):
    http = ""

    def failing_checks(self) -> list[str]:
        try:
            with urllib.request.urlopen(f"{self.http}/readyz") as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        return [failing["check"] for failing in found["failing"]]

    def end(self) -> None:
        """SIGTERM, and an orderly end: the clean stop is noted in the folder that goes with it."""
        assert self._process is not None
        self._process.terminate()
        assert self.wait() == 0
        assert self.events("stopped") == 1
        assert self.events("close_failed") == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    settings = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    with (
        SmallDisk(tmp_path_factory.mktemp("small") / "data", SIZE) as disk,
        WatchedBroker(disk, settings, ("--http", "127.0.0.1:0")) as broker,
    ):
        (line,) = [line for line in broker.log().splitlines() if '"http_ready"' in line]
        broker.http = "http://" + json.loads(line)["address"]
        with WireClient(broker.bootstrap) as client:
            create_topic(client, TOPIC, PARTITIONS)
        yield broker


def produce_to_all(client: WireClient) -> set[int]:
    """The error codes."""
    return {
        produce(client, TOPIC, batch_of(bytes(1000)), partition=index).error_code
        for index in range(PARTITIONS)
    }


def run(
    broker: BrokerProcess, *arguments: str, given: bytes = b"", timeout: str = "60s"
) -> tuple[int, str]:
    """Return exit status and stderr of a command."""
    command = [LAKELOG, *arguments, "-b", broker.bootstrap, "--timeout", timeout]
    done = subprocess.run(
        command, input=given, capture_output=True, timeout=PATIENCE_S, check=False
    )
    text = done.stderr.decode()
    assert "LL0999" not in text
    return done.returncode, text


def expect_refusal(broker: BrokerProcess, *arguments: str, text: str, given: bytes = b"") -> None:
    """Run a command that a full disk fails, until the broker's answer is its error.

    It repeats its request for two seconds; on a slow machine, the first answer may come later.
    """

    def is_refused() -> bool:
        status, found = run(broker, *arguments, given=given, timeout="2s")
        assert status != 0
        return text in found

    eventually(is_refused, PATIENCE_S, f"refused with {text!r}")


def commit(broker: BrokerProcess, offset: int, timeout_s: float) -> int:
    """Commit an offset without being a member; return the group's offset after that."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    position = TopicPartition(TOPIC, 0, offset)
    try:
        consumer.commit(offsets=[position], asynchronous=False)
        (found,) = consumer.committed([position], timeout=timeout_s)
        return found.offset
    finally:
        consumer.close()


def refused_commit(broker: BrokerProcess) -> int:
    """Commits until it is refused, once the last page of the log is full, and returns the code."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    try:
        with pytest.raises(ClientException) as failed:
            for number in range(1000):
                offsets = [TopicPartition(TOPIC, 0, number)]
                consumer.commit(offsets=offsets, asynchronous=False)
        code: int = failed.value.args[0].code()
        return code
    finally:
        consumer.close()


class Transactions:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "t",
                "transaction.timeout.ms": 300_000,
            }
        )
        self._producer.init_transactions(60)

    def write(self, value: bytes) -> None:
        self._producer.begin_transaction()
        self._producer.produce(TOPIC, value, partition=1)
        self._producer.commit_transaction(120)


def test_a_full_disk_passes(broker: WatchedBroker) -> None:
    transactions = Transactions(broker.bootstrap)
    transactions.write(b"before")
    assert commit(broker, 1, 60) == 1
    with WireClient(broker.bootstrap) as client:
        assert produce_to_all(client) == {0}
        broker.disk.fill()
        assert eventually(lambda: produce_to_all(client) == {STORAGE_ERROR}, what="a full disk")
        assert broker.failing_checks() == ["disk"]

        expect_refusal(broker, "topic", "create", "never", "--partitions", "2", text="is full")
        assert described(client, "never").error_code == 3, "nothing half-made remains"
        expect_refusal(broker, "topic", "alter", TOPIC, "--partitions", "9", text="is full")
        assert len(described(client, TOPIC).partitions) == PARTITIONS
        values = b"value\n" * 100
        expect_refusal(broker, "produce", TOPIC, given=values, text="KAFKA_STORAGE_ERROR")
        expect_refusal(broker, "produce", TOPIC, given=values, text="delete topics or records")
        assert "raise --timeout" not in run(broker, "produce", TOPIC, given=values, timeout="2s")[1]
        assert run(broker, "cluster", "health")[0] == 1
        status, text = run(broker, "consume", TOPIC, "-e", "-g", "others", timeout="2s")
        assert status != 0, text
        assert "raise --timeout" not in text
        assert refused_commit(broker) != ClientFailure.UNKNOWN
        for index in range(PARTITIONS):
            assert fetch(client, TOPIC, 0, partition=index).error_code == 0
        deletion = "topic", "delete-records", TOPIC, "--before", "1", "-y"
        expect_refusal(broker, *deletion, text="its disk is full")
        assert broker.events("records_deleted") == 0
        assert broker.events("log_directory_full") == 1

        broker.disk.free_capacity()
        assert eventually(lambda: broker.failing_checks() == [], what="a broker that is ready")
        assert broker.events("log_directory_has_space") == 1
        assert run(broker, "cluster", "health")[0] == 0
        assert produce_to_all(client) == {0}
        create_topic(client, "afterwards", 2)
    assert commit(broker, 2, 60) == 2
    transactions.write(b"after")
    assert run(broker, "consume", TOPIC, "-e", "-n", "1", "-g", "others")[0] == 0
    assert broker.events("partition_offline") == 0
    assert broker.events("request_failed") == 0
    broker.end()
