"""`log.durability=fsync` with an ordinary client: records, transactions and committed offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import BrokerProcess
from delivered import delivered

COUNT = 200


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings={"log.durability": "fsync"}) as broker:
        yield broker


def read_all(bootstrap: str, topic: str, *, commit: bool) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[bytes] = []
    with closing(consumer):
        consumer.subscribe([topic])
        while True:
            message = consumer.poll(60)
            assert message is not None, f"nothing more after {len(found)} records"
            error = message.error()
            if error is None:
                found.append(delivered(message).value)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                if commit and found:
                    consumer.commit(asynchronous=False)
                return found
            else:
                raise confluent_kafka.KafkaException(error)


def test_records_transactions_and_offsets(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(60)
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "orders"}
    )
    producer.init_transactions(60)
    for commits in (True, False, True):
        producer.begin_transaction()
        for i in range(COUNT):
            value = f"{commits}-{i}".encode()
            producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    assert not any(errors)

    wanted = [f"True-{i}".encode() for i in range(COUNT)] * 2
    assert read_all(broker.bootstrap, "orders", commit=True) == wanted

    broker.kill()
    broker.start()
    assert read_all(broker.bootstrap, "orders", commit=False) == []
    last = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "acks": 1})
    last.produce("orders", b"last")
    assert last.flush(60) == 0
    assert read_all(broker.bootstrap, "orders", commit=False) == [b"last"]
