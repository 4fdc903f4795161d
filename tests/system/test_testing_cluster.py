"""`lakelog.testing.cluster` with another project's clients."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from lakelog.testing import BrokerError, cluster
from waiting import eventually


def test_records_outlive_the_leader_of_their_partition() -> None:
    with cluster({"orders": 1}) as brokers:
        address = {"bootstrap.servers": brokers.bootstrap_servers, "log_level": 0}
        producer = Producer(address | {"acks": "all", "enable.idempotence": True})
        producer.produce("orders", b"before")
        assert producer.flush(60) == 0
        leader = brokers.leader_id("orders")
        brokers.brokers[leader].kill()
        producer.produce("orders", b"after")
        assert producer.flush(60) == 0
        eventually(lambda: brokers.leader_id("orders") not in (leader, -1))
        missing = rf"not in sync after 0.5 s:\nbroker {leader}\n(.*\n)*orders-0 with leader"

        def names_missing() -> bool:
            """Whether its last look was answered; an election is an error of the request."""
            with pytest.raises(BrokerError, match="not in sync after") as refused:
                brokers.await_in_sync(timeout_s=0.5)
            return re.search(missing, str(refused.value)) is not None

        eventually(names_missing)

        group = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(address | group)
        consumer.subscribe(["orders"])
        found: list[bytes | str | None] = []

        def read() -> bool:
            found.extend(message.value() for message in consumer.consume(10, 0.2))
            return len(found) >= 2

        eventually(read)
        consumer.close()
        assert found == [b"before", b"after"]

        brokers.brokers[leader].start()
        brokers.await_in_sync()
        brokers.brokers[brokers.controller_id].restart()
        brokers.await_in_sync()


def test_data_in_a_folder_stays(tmp_path: Path) -> None:
    for _ in range(2):
        with cluster(brokers=2, folder=tmp_path) as brokers:
            assert sorted(brokers.brokers) == [1, 2]
    assert (tmp_path / "metadata.db").exists()


def test_a_setting_that_is_wrong_is_an_error_with_the_log() -> None:
    wrong = {"num.partitions": "x"}
    with pytest.raises(BrokerError, match=r"num\.partitions=x"), cluster(settings=wrong):
        pass
