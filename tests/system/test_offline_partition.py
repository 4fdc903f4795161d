"""In a cluster, a partition whose only log is damaged has no leader until the log is mended."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import confluent_kafka

from broker_process import LAKELOG
from delivered import delivered
from lakelog.testing import Cluster, cluster
from waiting import eventually

VALUE = b"the value that is going to be damaged"


def _send(brokers: Cluster, value: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap_servers})
    producer.produce("orders", value)
    assert producer.flush(60) == 0


def _shown(brokers: Cluster, *words: str) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of a command that asks each of the brokers first."""
    command = [LAKELOG, *words, "-f", "json", "-b", brokers.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    shown = json.loads(done.stdout)
    return done.returncode, shown[0] if isinstance(shown, list) else shown


def test_a_damaged_log_without_other_replicas_has_no_leader(tmp_path: Path) -> None:
    with cluster(brokers=2, folder=tmp_path) as brokers:
        brokers.create_topic("orders", replication_factor=1)
        _send(brokers, VALUE)
        node_id = brokers.leader_id("orders")
        broker = brokers.brokers[node_id]
        broker.restart()  # with a recovery point after this record
        brokers.await_in_sync()
        _send(brokers, b"above")
        broker.kill()
        log = tmp_path / f"broker-{node_id}" / "orders-0" / f"{0:020}.log"
        intact = log.read_bytes()
        log.write_bytes(intact.replace(VALUE, VALUE.replace(b"damaged", b"changed")))
        broker.start()

        def has_settled() -> bool:
            status, health = _shown(brokers, "cluster", "health")
            assert status == 1
            offline = [(row["topic"], row["problem"]) for row in health["partitions"]]
            is_served = not health["fenced_brokers"]
            return is_served and offline == [("orders", "offline")]

        eventually(has_settled)
        _, described = _shown(brokers, "topic", "describe", "orders")
        (partition,) = described["partitions"]
        assert (partition["leader"], partition["problem"]) == (None, "offline")
        producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap_servers})
        producer.produce("orders", b"waits")
        broker.kill()
        log.write_bytes(intact)
        broker.start()
        assert producer.flush(60) == 0
        brokers.await_in_sync()
        assert _shown(brokers, "cluster", "health")[0] == 0
        assert _values(brokers, 3) == [VALUE, b"above", b"waits"]


def _values(brokers: Cluster, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap_servers, "group.id": "check"}
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    found = [delivered(each).value for each in consumer.consume(count, 60)]
    consumer.close()
    return found
