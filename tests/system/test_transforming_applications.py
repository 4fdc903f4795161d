"""Consume, transform and produce in transactions that follow each other at once, on three brokers.

The coordinators, the partition that is written and the partitions that are read have different
leaders. So the first batch of a transaction may be verified while the markers of the previous one
are under way. No error may reach the application.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from delivered import delivered
from kafka_jars import java_command
from lakelog.client.admin import Admin
from lakelog.testing import Cluster, cluster

RECORDS = 40
TIMEOUT_S = 180
_JAVA = Path(__file__).parents[1] / "java" / "TransformingApplication.java"
_SOURCE = "source"


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def brokers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """An idle cluster with a level of transaction.version, and the records to transform."""
    settings = {"group.initial.rebalance.delay.ms": 0}
    with cluster({_SOURCE: 3, "target": 1}, settings=settings) as running:
        _finalize(running, request.param)
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(_SOURCE, b"%d" % number, partition=number % 3)
        assert producer.flush(TIMEOUT_S) == 0
        yield running


def _finalize(brokers: Cluster, level: int) -> None:
    with Admin(brokers.bootstrap_servers) as admin:
        if level < admin.features.levels()["transaction.version"]:
            admin.features.update({}, {"transaction.version": level})
        assert admin.features.levels()["transaction.version"] == level


def _check(brokers: Cluster) -> None:
    """Check that each record was transformed once, and that its offset is committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": brokers.bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("target", 0, 0)])
    found = consumer.consume(RECORDS, TIMEOUT_S)
    found += consumer.consume(1, 1.0)
    consumer.close()
    assert sorted(int(delivered(each).value) for each in found) == list(range(RECORDS))
    with Admin(brokers.bootstrap_servers) as admin:
        ends = {key: position.offset for key, position in admin.groups.offsets("target").items()}
    assert ends == {(_SOURCE, index): len(range(index, RECORDS, 3)) for index in range(3)}


def test_librdkafka_sees_no_error(brokers: Cluster) -> None:
    errors: list[object] = []
    common = {"bootstrap.servers": brokers.bootstrap_servers, "error_cb": errors.append}
    consumer = confluent_kafka.Consumer(
        {
            **common,
            "group.id": "target",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = confluent_kafka.Producer({**common, "transactional.id": "target", "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([_SOURCE])
    left = RECORDS
    while left:
        for message in consumer.consume(left, 0.2):
            record = delivered(message)
            producer.begin_transaction()
            producer.produce("target", record.value, partition=0, on_delivery=_raise)
            position = confluent_kafka.TopicPartition(_SOURCE, record.partition, record.offset + 1)
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([position], metadata, TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            left -= 1
    consumer.close()
    _check(brokers)
    assert errors == []


def _raise(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
    if error is not None:
        raise confluent_kafka.KafkaException(error)


@pytest.mark.java
def test_javas_clients_see_no_error(brokers: Cluster) -> None:
    """With level 2 the producer adds no partitions: their leaders do (KIP-890)."""
    done = subprocess.run(
        java_command("tools", _JAVA, brokers.bootstrap_servers, _SOURCE, "target", str(RECORDS)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stdout + done.stderr
    _check(brokers)
