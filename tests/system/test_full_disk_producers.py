"""A full disk under an idempotent producer: each record is stored once, and in order.

One of three brokers has a small disk. While it is full, its partitions refuse batches, and the
partitions of the other brokers wait for its copies until their requests time out: whether these
records are stored is unknown to the producer. A new epoch would send them again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import BrokerProcess
from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble
from small_disk import SmallDisk, SmallDiskBroker
from waiting import eventually

TOPIC, PARTITIONS = "narrow", 12
SIZE = 96 << 20
RECORDS_MAX = 60_000
OUTSTANDING_MAX = 5_000
VALUE = bytes(100)
IMPATIENT = {"linger.ms": 0, "request.timeout.ms": 1000}
DEFAULTS: dict[str, int] = {}
_STUCK_S = 2.0
FLUSH_S = 120


class Load(Thread):
    """Numbered records of a producer that has several requests in flight, until `end`."""

    def __init__(self, bootstrap: str, settings: Mapping[str, int]) -> None:
        super().__init__()
        always = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**always, **settings})
        self.sent: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.acknowledged = 0
        self._acknowledged_at = time.monotonic()
        self._failures: list[KafkaError] = []
        self._ended = Event()

    def run(self) -> None:
        for number in range(RECORDS_MAX):
            while number % 4 == 0 or number > self.acknowledged + OUTSTANDING_MAX:
                if self._ended.wait(0.001):
                    return
                self._producer.poll(0)
                if number <= self.acknowledged + OUTSTANDING_MAX:
                    break
            key, partition = b"%d" % number, number % PARTITIONS
            self._producer.produce(
                TOPIC, VALUE, key, partition=partition, on_delivery=self._on_delivery
            )
            self.sent[partition].append(key)
            self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
        self.acknowledged += 1
        self._acknowledged_at = time.monotonic()

    def is_stuck(self) -> bool:
        """Whether each leader has refused a batch by now, or waits for a follower."""
        self._producer.poll(0)
        return time.monotonic() - self._acknowledged_at > _STUCK_S

    def end(self) -> None:
        """Wait until the last record is acknowledged."""
        self._ended.set()
        self.join()
        assert self._producer.flush(FLUSH_S) == 0
        assert not self._failures


def stored(bootstrap: str, partition: int) -> list[bytes]:
    """Return the keys of all records in the order of their offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    consumer = Consumer(settings)
    position, keys = TopicPartition(TOPIC, partition, 0), list[bytes]()
    try:
        _, end = consumer.get_watermark_offsets(position, timeout=60)
        consumer.assign([position])
        while consumer.position([position])[0].offset < end:
            for message in consumer.consume(1000, 0.05):
                key = message.key()
                assert message.error() is None
                assert isinstance(key, bytes)
                keys.append(key)
    finally:
        consumer.close()
    return keys


@pytest.fixture
def narrow(tmp_path: Path, kind: str) -> Iterator[SmallDiskBroker]:
    """Of three brokers node 1, whose disk is small."""
    with ExitStack() as stack:
        store = f"sqlite:{tmp_path / 'metadata.db'}"
        if kind == "zookeeper":
            ensemble = stack.enter_context(ZooKeeperEnsemble(tmp_path / "zookeeper"))
            store = f"zookeeper://{','.join(ensemble.servers)}/lakelog"
        disk = stack.enter_context(SmallDisk(tmp_path / "data", SIZE))
        broker = SmallDiskBroker(disk, {}, ("--node-id", "1", "--metadata", store))
        stack.enter_context(broker)
        for number in ("2", "3"):
            arguments = ("--node-id", number, "--metadata", store)
            stack.enter_context(BrokerProcess(tmp_path / number, arguments=arguments))
        yield broker


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sqlite", IMPATIENT),
        pytest.param(
            "zookeeper", DEFAULTS, marks=pytest.mark.xdist_group("zookeeper"), id="zookeeper"
        ),
    ],
)
def test_each_record_is_stored_once_and_in_order(
    narrow: SmallDiskBroker, settings: Mapping[str, int]
) -> None:
    admin = AdminClient({"bootstrap.servers": narrow.bootstrap})
    eventually(lambda: len(admin.list_topics(timeout=30).brokers) == 3)
    topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(60)
    load = Load(narrow.bootstrap, settings)
    load.start()
    eventually(lambda: load.acknowledged > 1000)
    narrow.disk.fill()
    eventually(lambda: narrow.events("log_directory_full"))
    # Either all partitions wait for the full disk, or others have taken its place.
    enough = load.acknowledged + OUTSTANDING_MAX
    eventually(lambda: load.is_stuck() or load.acknowledged > enough)
    narrow.disk.free_capacity()
    load.end()
    for partition, keys in load.sent.items():
        assert stored(narrow.bootstrap, partition) == keys
