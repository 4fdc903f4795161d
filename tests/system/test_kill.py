"""SIGKILL while clients work, then a restart: acknowledged records survive."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import pytest

from broker_process import BrokerProcess
from clients.adapters.confluent import Confluent
from clients.reading import poll_count
from file_oracle import check_data_folder
from kafka_jars import require
from lakelog.protocol.fetch import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lakelog.records.batch import iter_batches
from lakelog.records.record import decode_records
from waiting import eventually
from wire_client import (
    WireClient,
    batch_of,
    create_topic,
    described,
    fetch,
    new_producer_id,
    produce,
    stored_batches,
)

RECONNECTING = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


def stored_values(bootstrap: str, topic: str) -> list[bytes]:
    return [
        bytes(record.value or b"")
        for header, batch in stored_batches(bootstrap, topic)
        for record in decode_records(batch, header, 1 << 26)
    ]


class Flood:
    """Produces numbered values as fast as it can on a thread, noting the acknowledged ones."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self.sent = 0
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, **RECONNECTING, **settings}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Waits until the fate of every record is known."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def wait_for(self, count: int) -> None:
        """Until that many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted, what="enough acknowledgements")

    def _run(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) < 2000:
                number = self.sent
                value = b"%08d" % number
                self._producer.produce(self._topic, value, on_delivery=self._noting(number))
                self.sent += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
        self._producer.flush(60)

    def _noting(self, number: int) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(str(error))

        return on_delivery


def test_what_acks_1_has_acknowledged_is_there(broker: BrokerProcess) -> None:
    settings = {"acks": 1, "retries": 0, "message.timeout.ms": 60_000}
    with WireClient(broker.bootstrap) as client:
        create_topic(client, "numbers")
    with Flood(broker.bootstrap, "numbers", settings) as flood:
        for _ in range(3):
            flood.wait_for(2000)
            broker.kill()
            broker.restart()
        flood.wait_for(500)
    stored = Counter(stored_values(broker.bootstrap, "numbers"))
    missing = [number for number in flood.acknowledged if b"%08d" % number not in stored]
    assert missing == []
    assert max(stored.values()) == 1, "nothing was sent twice"


def test_groups_resume_where_they_committed(broker: BrokerProcess) -> None:
    client = Confluent(broker.bootstrap)
    with WireClient(broker.bootstrap) as wire:
        create_topic(wire, "read")
        produce(wire, "read", batch_of(*[b"x"] * 10))
    with closing(client.consumer("readers", "read")) as consumer:
        poll_count(consumer, 10)
        consumer.commit()
        broker.kill()
        broker.restart()
        assert client.admin().committed("readers", "read") == {0: 10}
        assert client.admin().describe_group("readers") == ("Stable", 1)
        with WireClient(broker.bootstrap) as wire:
            produce(wire, "read", batch_of(*[b"y"] * 3))
        assert [record.offset for record in poll_count(consumer, 3)] == [10, 11, 12]
        consumer.commit()
    broker.kill()
    broker.restart()
    with WireClient(broker.bootstrap) as wire:
        produce(wire, "read", batch_of(b"z"))
    with closing(client.consumer("readers", "read")) as consumer:
        assert [record.offset for record in poll_count(consumer, 1)] == [13]


def _earliest(client: WireClient, topic: str) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    offset: int = client.call(request, 5).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_nothing_begins_again(tmp_path: Path, end: str) -> None:
    """Offsets, log start offsets, topic ids and producer ids go on; the leader epoch rises."""
    settings = {"log.retention.check.interval.ms": "100", "log.segment.delete.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with WireClient(broker.bootstrap) as client:
            create_topic(client, "kept")
            limits = {"segment.bytes": "1048576", "retention.bytes": "1048576"}
            create_topic(client, "trimmed", 1, limits)
            for _ in range(40):
                produce(client, "trimmed", batch_of(b"x" * 100_000))
            start = eventually(lambda: _earliest(client, "trimmed"), what="retention")
            produce(client, "kept", batch_of(b"a", b"b", b"c"))
            before = described(client, "kept")
            first_id = new_producer_id(client)
        getattr(broker, end)()
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            assert _earliest(client, "trimmed") >= start > 0
            assert produce(client, "trimmed", batch_of(b"x")).base_offset == 40
            assert produce(client, "kept", batch_of(b"d")).base_offset == 3
            after = described(client, "kept")
            assert after.topic_id == before.topic_id
            assert new_producer_id(client) > first_id
            old, new = (entry.partitions[0].leader_epoch for entry in (before, after))
            assert new > old
            assert fetch(client, "kept", 0, leader_epoch=old).error_code == 74
            assert fetch(client, "kept", 0, leader_epoch=new).error_code == 0
            batches = list(iter_batches(fetch(client, "kept", 0).records))
            assert [header.partition_leader_epoch for header, _ in batches] == [old, new]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_batch_sent_again_after_a_restart_is_recognised(broker: BrokerProcess, end: str) -> None:
    """KIP-98: the last batch at least."""
    with WireClient(broker.bootstrap) as client:
        create_topic(client, "once")
        producer = new_producer_id(client)
        for index in range(3):
            produce(client, "once", batch_of(b"%d" % index, producer=(producer, 0, index)))
    getattr(broker, end)()
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        last = produce(client, "once", batch_of(b"2", producer=(producer, 0, 2)))
        assert (last.error_code, last.base_offset) == (0, 2)
        following = produce(client, "once", batch_of(b"3", producer=(producer, 0, 3)))
        assert (following.error_code, following.base_offset) == (0, 3)
        gap = produce(client, "once", batch_of(b"9", producer=(producer, 0, 9)))
        assert gap.error_code == 45


def test_topics_and_deletions_survive(broker: BrokerProcess) -> None:
    client = Confluent(broker.bootstrap)
    admin = client.admin()
    for name in ("stays", "goes"):
        admin.create_topic(name, 2, {"retention.ms": "7200000"})
    with WireClient(broker.bootstrap) as wire:
        produce(wire, "goes", batch_of(b"old"))
    admin.delete_topic("goes")
    broker.kill()
    broker.restart()
    admin = client.admin()
    assert admin.topics() >= {"stays"}
    assert "goes" not in admin.topics()
    assert admin.partition_count("stays") == 2
    assert admin.topic_config("stays")["retention.ms"] == "7200000"
    admin.create_topic("goes", 1)
    with WireClient(broker.bootstrap) as wire:
        assert produce(wire, "goes", batch_of(b"new")).base_offset == 0


@pytest.mark.java
def test_a_clean_stop_needs_no_recovery(broker: BrokerProcess) -> None:
    require("java")
    with WireClient(broker.bootstrap) as client:
        for index in range(5):
            create_topic(client, f"topic-{index}", 4)
            for partition in range(4):
                produce(client, f"topic-{index}", batch_of(b"x" * 1000), partition=partition)
    clean = broker.data / ".kafka_cleanshutdown"
    assert not clean.exists()
    broker.stop()
    assert clean.exists()
    check_data_folder(broker.data)

    broker.restart()
    assert "recover" not in broker.log()
    assert not clean.exists(), "a crash from here on must not look clean"
    assert len(stored_values(broker.bootstrap, "topic-3")) == 1
