"""Where a partition begins, ends and stood at a time, by two libraries; records of the future."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as RdOffsetSpec
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec

from broker_process import BrokerProcess
from clients.adapters.api import Sent
from clients.adapters.confluent import Confluent
from clients.adapters.kafka_python import KafkaPython
from clients.adapters.patient import own_admin, patiently
from clients.adapters.transactions import ConfluentTransactional
from waiting import eventually

TIMEOUT_S = 60.0
START_MS = (int(time.time()) - 3600) * 1000
FUTURE_MS = 4_102_444_800_000
"""The year 2100."""
HOUR_MS = 3_600_000

Look = Callable[[int, bool], int]
"""The offset at a timestamp or a special one, for all records or for the committed ones."""


def by_confluent(bootstrap: str, topic: str) -> Iterator[Look]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    specs = {
        -1: RdOffsetSpec.latest(),
        -2: RdOffsetSpec.earliest(),
        -3: RdOffsetSpec.max_timestamp(),
    }
    partition = confluent_kafka.TopicPartition(topic, 0)

    def look(at: int, committed: bool) -> int:
        level = confluent_kafka.IsolationLevel(int(committed))
        spec = specs.get(at) or RdOffsetSpec.for_timestamp(at)

        def ask() -> int:
            (future,) = admin.list_offsets({partition: spec}, isolation_level=level).values()
            offset: int = future.result(TIMEOUT_S).offset
            return offset

        return patiently(ask)

    yield look


def by_kafka_python(bootstrap: str, topic: str) -> Iterator[Look]:
    partition = TopicPartition(topic, 0)
    with closing(patiently(lambda: KafkaAdminClient(bootstrap_servers=bootstrap))) as admin:

        def look(at: int, committed: bool) -> int:
            spec = OffsetSpec(at) if at < 0 else at
            level = int(committed)
            found = patiently(
                lambda: admin.list_partition_offsets({partition: spec}, isolation_level=level)
            )
            offset: int = found[partition].offset
            return offset

        yield look


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"times-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, 1)
    return name


@pytest.fixture(params=[by_confluent, by_kafka_python], ids=["confluent-kafka", "kafka-python"])
def look(request: pytest.FixtureRequest, bootstrap: str, topic: str) -> Iterator[Look]:
    yield from request.param(bootstrap, topic)


def test_special_timestamps(look: Look, bootstrap: str, topic: str) -> None:
    """The newest record is in the middle, and an open transaction behind the third."""
    times = [START_MS, START_MS + 9000, START_MS + 1000]
    sent = [Sent(b"x", timestamp_ms=each) for each in times]
    Confluent(bootstrap).produce(topic, sent, idempotent=True)
    with closing(ConfluentTransactional(bootstrap, topic)) as producer:
        producer.init()
        producer.begin()
        producer.send(topic, b"open")
        assert (look(-1, False), look(-1, True)) == (4, 3)
        assert (look(-2, False), look(-2, True)) == (0, 0)
        assert look(-3, False) == 3, "the open one is the newest"
        assert look(-3, True) == -1, "as in Kafka: the newest record is not committed"
        assert look(START_MS + 500, True) == 1
        assert look(START_MS + 9001, False) == 3
        assert look(START_MS + 9001, True) == -1
        producer.abort()
    eventually(lambda: look(-1, True) == 5, what="the marker")


def test_special_timestamps_of_logs_with_a_remote_part(bootstrap: str, topic: str) -> None:
    """-4 (KIP-405) is the start of the local log, -5 (KIP-1005) the end of the remote part."""
    Confluent(bootstrap).produce(topic, [Sent(b"x")] * 3, idempotent=True)
    with closing(patiently(lambda: KafkaAdminClient(bootstrap_servers=bootstrap))) as admin:
        partition = TopicPartition(topic, 0)
        patiently(lambda: admin.delete_records({partition: 2}))
        found = [
            patiently(partial(admin.list_partition_offsets, {partition: spec}))[partition].offset
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST_TIERED)
        ]
    assert found == [2, 2, -1]


@pytest.mark.parametrize("make", [Confluent, KafkaPython], ids=lambda make: make.name)
def test_kip_937_a_record_of_the_year_2100_does_not_pin_the_log(
    make: Callable[[str], Confluent | KafkaPython], tmp_path: Path
) -> None:
    """KAFKA-18929, KAFKA-20609: it is refused, or goes when its file is old or the log too big."""
    settings = {"log.retention.check.interval.ms": "200"}
    unbounded = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    future = [Sent(b"x" * 400_000, timestamp_ms=FUTURE_MS)]
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        client = make(broker.bootstrap)
        with closing(client.admin()) as admin:
            admin.create_topic("bounded", 1, {"message.timestamp.after.max.ms": str(HOUR_MS)})
            with pytest.raises(Exception, match=r"(?i)invalid.?timestamp"):
                client.produce("bounded", future)

            admin.create_topic("timed", 1, unbounded | {"retention.ms": "500"})
            client.produce("timed", future)
            eventually(lambda: admin.earliest_and_latest("timed", 0) == (1, 1), TIMEOUT_S)

            admin.create_topic("rolled", 1, unbounded | {"retention.ms": "500", "segment.ms": "1"})
            client.produce("rolled", future)
            client.produce("rolled", [Sent(b"now")])
            eventually(lambda: admin.earliest_and_latest("rolled", 0) == (2, 2), TIMEOUT_S)

            sizes = {"retention.bytes": "1000000", "segment.bytes": "1048576"}
            admin.create_topic("sized", 1, unbounded | sizes)
            for _ in range(5):
                client.produce("sized", future)
            eventually(lambda: admin.earliest_and_latest("sized", 0) == (2, 5), TIMEOUT_S)
