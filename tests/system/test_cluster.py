"""Three broker processes with one metadata file: replication, failover, and joining."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import LAKELOG, BrokerProcess
from lakelog.client.admin import Admin
from waiting import eventually

TOPIC, PARTITIONS = "orders", 3
QUIET = {"log_level": 0}


class Cluster:
    """The brokers by node id."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "metadata.db"
        self.brokers = {number: self._broker(folder, number) for number in (1, 2, 3)}

    def _broker(self, folder: Path, number: int) -> BrokerProcess:
        arguments = ("--node-id", str(number), "--metadata", f"sqlite:{self.store}")
        settings = {"offsets.topic.num.partitions": "1"}
        return BrokerProcess(folder / f"broker{number}", settings=settings, arguments=arguments)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def controller(self) -> int:
        with closing(sqlite3.connect(self.store)) as database:
            (found,) = database.execute("SELECT controller_id FROM state").fetchone()
        return int(found)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def serving(self) -> set[int]:
        """Return the brokers that are not fenced."""
        with Admin(self.bootstrap) as admin:
            found = admin.brokers.describe().brokers
            return {each.node_id for each in found if not each.is_fenced}

    def states(self) -> dict[int, tuple[int, list[int]]]:
        """Return leader and sorted ISR of each partition."""
        topic = self.admin().list_topics(TOPIC, timeout=30).topics[TOPIC]
        return {index: (each.leader, sorted(each.isrs)) for index, each in topic.partitions.items()}

    def is_full(self) -> bool:
        states = self.states()
        return len(states) == PARTITIONS and all(
            isr == sorted(self.brokers) for _, isr in states.values()
        )

    def kill(self, number: int) -> None:
        """Kill a broker, and wait until it is in no ISR."""
        self.brokers[number].kill()
        eventually(lambda: all(number not in isr for _, isr in self.states().values()))

    def create(self) -> None:
        wanted = NewTopic(
            TOPIC, PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"}
        )
        eventually(lambda: len(self.admin().list_topics(timeout=30).brokers) == 3)
        admin = self.admin()
        admin.create_topics([wanted])[TOPIC].result(30)
        eventually(self.is_full)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with ExitStack() as stack:
        for broker in made.brokers.values():
            stack.enter_context(broker)
        yield made


class Load:
    """Numbered records, and the acknowledged ones."""

    def __init__(self, cluster: Cluster) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET}
        self._producer = Producer({**settings, "enable.idempotence": True})
        self._sent = 0
        self.acknowledged: set[bytes] = set()

    def send(self, count: int) -> None:
        """Send records to all partitions without waiting for their acknowledgements."""
        for number in range(self._sent, self._sent + count):
            value = str(number).encode()
            self._producer.produce(
                TOPIC, value, partition=number % PARTITIONS, on_delivery=self._on_delivery
            )
        self._sent += count
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all records are acknowledged."""
        assert self._producer.flush(60) == 0
        assert len(self.acknowledged) == self._sent

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            assert isinstance(value, bytes)
            self.acknowledged.add(value)


def stored(cluster: Cluster, count: int) -> list[bytes]:
    """Return the first `count` committed records of all partitions."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", **QUIET}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: list[bytes] = []

    def read() -> bool:
        values = [each.value() for each in consumer.consume(1000, 0.2) if each.error() is None]
        found.extend(value for value in values if isinstance(value, bytes))
        return len(found) >= count

    try:
        eventually(read)
    finally:
        consumer.close()
    return found


def log_bytes(broker: BrokerProcess, index: int) -> bytes:
    files = sorted((broker.data / f"{TOPIC}-{index}").glob("*.log"))
    return b"".join(each.read_bytes() for each in files).rstrip(b"\0")


def test_nothing_acknowledged_is_lost_when_leaders_and_controllers_are_killed(
    cluster: Cluster,
) -> None:
    cluster.create()
    load = Load(cluster)
    for victim in ("leader", "controller"):
        load.send(500)
        number = cluster.controller if victim == "controller" else cluster.states()[0][0]
        broker = cluster.brokers[number]
        broker.kill()
        load.send(500)
        load.finish()
        broker.restart()
        eventually(cluster.is_full)
    values = stored(cluster, len(load.acknowledged))
    assert sorted(values) == sorted(load.acknowledged)
    for broker in cluster.brokers.values():
        broker.stop()
    for index in range(PARTITIONS):
        first, *others = (log_bytes(broker, index) for broker in cluster.brokers.values())
        assert first
        assert others == [first, first]


@pytest.mark.parametrize("gone", ["", f"{TOPIC}-0"], ids=["folder", "one log"])
def test_no_broker_leads_with_an_empty_log_until_an_eligible_one_is_back(
    cluster: Cluster, gone: str
) -> None:
    cluster.create()
    load = Load(cluster)
    load.send(600)
    load.finish()
    first, second, last = (cluster.brokers[number] for number in (1, 2, 3))
    cluster.kill(1)
    cluster.kill(2)
    last.kill()
    shutil.rmtree(last.data / gone)
    last.restart()
    # One lost log costs the broker its eligibility for that partition only.
    lost = [index for index in range(PARTITIONS) if gone in ("", f"{TOPIC}-{index}")]

    def is_without_leader() -> bool:
        states = cluster.states()
        return all(states[index] == (-1, []) for index in lost)

    eventually(is_without_leader)
    assert "partitions_leaderless" in last.log()
    first.restart()  # the others have committed without it
    eventually(lambda: cluster.serving() == {1, 3})
    assert is_without_leader()
    second.restart()
    eventually(cluster.is_full)
    assert sorted(stored(cluster, len(load.acknowledged))) == sorted(load.acknowledged)


def test_a_replica_begins_within_a_batch_as_its_leader_does(cluster: Cluster) -> None:
    """DeleteRecords leaves the start of a log within a batch, which is copied as a whole."""
    cluster.create()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 500, **QUIET})
    for number in range(3):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    start = TopicPartition(TOPIC, 0, 2)
    admin = cluster.admin()
    assert admin.delete_records([start])[start].result(30).low_watermark == 2
    leader, _ = cluster.states()[0]
    other = 2 if leader == 1 else 1
    cluster.kill(other)
    shutil.rmtree(cluster.brokers[other].data)
    cluster.brokers[other].restart()
    eventually(cluster.is_full)
    assert log_bytes(cluster.brokers[other], 0) == log_bytes(cluster.brokers[leader], 0)
    cluster.kill(leader)
    assert stored(cluster, 1) == [b"2"]


def test_an_operator_may_accept_the_loss_of_records(cluster: Cluster) -> None:
    cluster.create()
    cluster.kill(2)
    cluster.kill(3)
    cluster.brokers[1].kill()
    shutil.rmtree(cluster.brokers[1].data)
    cluster.brokers[1].restart()
    eventually(lambda: {leader for leader, _ in cluster.states().values()} == {-1})
    where = ("-b", cluster.brokers[1].bootstrap, "-f", "json")
    command = [LAKELOG, "topic", "describe", TOPIC, *where]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=True)
    (shown,) = json.loads(ended.stdout)
    assert {tuple(row["elr"]) for row in shown["partitions"]} == {(3,)}
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    admin = cluster.admin()
    elected = admin.elect_leaders(ElectionType.UNCLEAN, partitions).result(30)
    assert set(elected.values()) == {None}
    eventually(lambda: {leader for leader, _ in cluster.states().values()} == {1})


def test_a_node_id_in_use_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    store = ("--metadata", f"sqlite:{cluster.store}", "--listen", "127.0.0.1:0")
    command = [LAKELOG, "serve", "--node-id", "2", "--data", str(tmp_path / "twin"), *store]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "LL0701" in ended.stderr
    assert "another process that runs this broker id" in ended.stderr
    assert "--node-id of its own" in ended.stderr


def test_a_folder_of_another_cluster_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "stranger", arguments=("--node-id", "4")) as stranger:
        stranger.stop()
    store = ("--metadata", f"sqlite:{cluster.store}", "--listen", "127.0.0.1:0")
    command = [LAKELOG, "serve", "--node-id", "4", "--data", str(stranger.data), *store]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 6
    assert "error[LL0707]" in ended.stderr
    assert "belongs to another cluster; check --metadata" in ended.stderr
