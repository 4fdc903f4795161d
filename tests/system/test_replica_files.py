"""The files of all replicas after a load under moving leaders, read by Apache Kafka's tools."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from clients.adapters.transactions import ConfluentTransactional
from file_oracle import check_data_folder
from lakelog.storage.checkpoint import LEADER_EPOCHS, decode_epochs
from moving_cluster import BROKERS, Mover, moving_cluster
from replica_oracle import check_replicas
from waiting import eventually

pytestmark = pytest.mark.java

TOPIC, PARTITIONS = "orders", 3
_TIMEOUT_S = 60.0
_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
}
"""Errors of a commit while the coordinator moves; the last three are librdkafka's own."""
_SMALL_SEGMENTS = {"internal.segment.bytes": "50000"}


def load(mover: Mover) -> int:
    """Write in all ways until each broker was restarted; return the count of plain records."""
    bootstrap = mover.cluster.bootstrap_servers
    settings = {"bootstrap.servers": bootstrap}
    plain = Producer({**settings, "enable.idempotence": True, "compression.type": "lz4"})
    group = Consumer({**settings, "group.id": TOPIC})
    rounds = 0
    with closing(group), closing(ConfluentTransactional(bootstrap, TOPIC)) as transactional:
        transactional.init()
        while mover.restarts < BROKERS or rounds < 20:
            mover.check()
            for number in range(300):
                plain.produce(TOPIC, b"%d " % number * 20, partition=number % PARTITIONS)
            assert plain.flush(_TIMEOUT_S) == 0
            transactional.begin()
            for partition in range(PARTITIONS):
                transactional.send(TOPIC, b"in a transaction", partition)
            transactional.abort() if rounds % 3 else transactional.commit()
            _commit(group, rounds)
            rounds += 1
    return rounds * 300


def _commit(group: Consumer, offset: int) -> None:
    """Commit, and again while the coordinator moves: librdkafka repeats twice, then raises."""
    position = TopicPartition(TOPIC, 0, offset)
    eventually(
        lambda: group.commit(offsets=[position], asynchronous=False),
        passing=lambda error: isinstance(error, KafkaException) and error.args[0].code() in _MOVES,
    )


def test_replicas_are_equal_and_readable_by_kafka(tmp_path: Path) -> None:
    with moving_cluster(tmp_path) as mover:
        mover.cluster.create_topic(TOPIC, PARTITIONS, _SMALL_SEGMENTS)
        records = load(mover)
    compared = check_replicas(mover.folders)
    assert {topic for topic, _ in compared} == {TOPIC, "__consumer_offsets", "__transaction_state"}
    for folder in mover.folders:
        check_data_folder(folder)
        for partition in range(PARTITIONS):
            log = folder / f"{TOPIC}-{partition}"
            assert compared[TOPIC, partition] > records / 300
            assert len(list(log.glob("*.log"))) > 1
            assert len(decode_epochs((log / LEADER_EPOCHS).read_bytes())) > 1
