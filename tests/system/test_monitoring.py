"""The HTTP endpoint reports known traffic correctly."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client import ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from broker_process import LAKELOG, BrokerProcess
from lakelog.metrics import Family
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from lakelog.server.monitoring.families import COMPAT, DETAIL, OVERVIEW
from waiting import eventually
from wire_client import (
    PRODUCE_VERSION,
    WireClient,
    batch_of,
    create_topic,
    produce,
    produce_request,
)

RECORDS = 30
COUNT = "lakelog_request_duration_seconds_count"
READ = 12


class Endpoint:
    """The pages of a broker, whose log says where they are."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.address = broker.http_address

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def json(self, path: str) -> tuple[int, Any]:
        status, body = self.get(path)
        return status, json.loads(body)

    def families(self, path: str) -> dict[str, Any]:
        status, body = self.get(path)
        assert status == 200
        return {found.name: found for found in text_string_to_metric_families(body.decode())}

    def value(self, name: str, path: str = "/metrics", **labels: str) -> float | None:
        for family in self.families(path).values():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("monitored") / "data"
    settings = {"lakelog.metrics.compat": "true", "num.partitions": "2"}
    with BrokerProcess(data, 0, settings, ("--http", "127.0.0.1:0")) as running:
        yield running
        running.stop()


@pytest.fixture(scope="module")
def endpoint(broker: BrokerProcess) -> Endpoint:
    return Endpoint(broker)


class Traffic(NamedTuple):
    """Results of records sent one by one to partition 1 of `orders`."""

    consumer: Consumer
    counted: float
    """Produce requests by the metrics; other tests make some too, before or after."""


@pytest.fixture(scope="module")
def traffic(broker: BrokerProcess, endpoint: Endpoint) -> Iterator[Traffic]:
    """A group has read the records and committed some of them."""
    before = endpoint.value(COUNT, api="Produce") or 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": 1})
    for _ in range(RECORDS):
        producer.produce("orders", value=b"x" * 100, partition=1)
        assert not producer.flush(60)
    counted = (endpoint.value(COUNT, api="Produce") or 0) - before
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 1, 0)])
    values = consumer.consume(RECORDS, 60)
    assert len(values) == RECORDS
    consumer.commit(offsets=[TopicPartition("orders", 1, READ)], asynchronous=False)
    yield Traffic(consumer, counted)
    consumer.close()


def _described(family: Family) -> tuple[str, str, str]:
    name = family.name.removesuffix("_total") if family.kind.value == "counter" else family.name
    return name, family.kind.value, family.help


def test_the_pages_hold_the_families_and_no_other(traffic: Traffic, endpoint: Endpoint) -> None:
    for path, known in (("/metrics", OVERVIEW | COMPAT), ("/metrics/detail", DETAIL)):
        families = endpoint.families(path)
        shown = {(f.name, f.type, f.documentation) for f in families.values()}
        assert shown == {_described(family) for family in known.values()}
        labels = {family.name: set(family.labels) for family in known.values()}
        samples = [sample for family in families.values() for sample in family.samples]
        assert len(samples) > len(known)
        for sample in samples:
            base = sample.name
            for suffix in ("_total", "_bucket", "_sum", "_count"):
                base = base if base in labels else base.removesuffix(suffix)
            assert set(sample.labels) - {"le"} == labels[base], sample


def _by_prometheus(broker: BrokerProcess) -> dict[str, float]:
    """The metrics of the broker's process as Prometheus' client library reads them."""
    collector = ProcessCollector(pid=lambda: broker.pid, registry=None)
    return {sample.name: sample.value for found in collector.collect() for sample in found.samples}


def test_the_process_is_counted_as_prometheus_clients_count_it(
    traffic: Traffic, broker: BrokerProcess, endpoint: Endpoint
) -> None:
    before = _by_prometheus(broker)
    shown = {name: endpoint.value(name) for name in OVERVIEW if name.startswith("process_")}
    after = _by_prometheus(broker)
    assert set(shown) == set(before)
    assert shown["process_max_fds"] == before["process_max_fds"]
    assert shown["process_start_time_seconds"] == before["process_start_time_seconds"]
    for name in ("process_open_fds", "process_resident_memory_bytes"):
        assert shown[name] == pytest.approx(before[name], rel=0.25), name
    used = shown["process_cpu_seconds_total"]
    tick = 0.02  # their figure is rounded to the kernel's clock
    name = "process_cpu_seconds_total"
    assert used is not None and before[name] - tick <= used <= after[name] + tick


def test_requests_records_bytes_and_sizes(
    traffic: Traffic, broker: BrokerProcess, endpoint: Endpoint
) -> None:
    value = endpoint.value
    assert traffic.counted == RECORDS
    in_buckets = value("lakelog_request_duration_seconds_bucket", api="Produce", le="+Inf")
    assert in_buckets == value(COUNT, api="Produce")
    assert value("lakelog_records_total", topic="orders", op="produce") == RECORDS
    stored = sum(path.stat().st_size for path in broker.data.glob("orders-*/*.log"))
    assert value("lakelog_produce_bytes_total", topic="orders") == stored
    assert value("lakelog_log_size_bytes", topic="orders") == stored
    assert value("lakelog_fetch_bytes_total", topic="orders") == stored
    detail = {"path": "/metrics/detail", "topic": "orders"}
    assert value("lakelog_partition_records_total", partition="0", **detail) == 0
    assert value("lakelog_partition_log_end_offset", partition="1", **detail) == RECORDS
    fsyncs = value("lakelog_fsync_duration_seconds_count")
    assert fsyncs is not None and fsyncs > 0


def test_lag_is_exported_by_own_names_and_by_names_of_other_exporters(
    traffic: Traffic, endpoint: Endpoint
) -> None:
    behind = RECORDS - READ
    value = endpoint.value
    assert value("lakelog_group_lag_records", group="readers", topic="orders") == behind
    labels = {"topic": "orders", "partition": "1"}
    assert value("kafka_consumergroup_lag", consumergroup="readers", **labels) == behind
    assert value("kafka_consumergroup_current_offset", consumergroup="readers", **labels) == READ
    assert value("kafka_topic_partition_current_offset", **labels) == RECORDS
    assert value("kafka_topic_partitions", topic="orders") == 2
    assert value("kafka_brokers") == 1


def test_connections_by_software(traffic: Traffic, endpoint: Endpoint) -> None:
    samples = endpoint.families("/metrics")["lakelog_connections"].samples
    software = {sample.labels["client_software"].split()[0]: sample.value for sample in samples}
    assert software["confluent-kafka-python"] >= 2


def test_errors_by_code(broker: BrokerProcess, endpoint: Endpoint) -> None:
    with WireClient(broker.bootstrap) as client:
        create_topic(client, "twice")
        client.call(produce_request("twice", batch_of(b"x"), acks=7), PRODUCE_VERSION)
        again = CreateTopicsRequest(topics=[CreatableTopic(name="twice", num_partitions=1)])
        (refused,) = client.call(again, 5).topics
        assert refused.error_code == 36
    for api, code in (
        ("Produce", "INVALID_REQUIRED_ACKS"),
        ("CreateTopics", "TOPIC_ALREADY_EXISTS"),
    ):
        assert endpoint.value("lakelog_request_errors_total", api=api, code=code) == 1


def test_health_and_version(broker: BrokerProcess, endpoint: Endpoint) -> None:
    assert endpoint.json("/healthz") == (200, {"status": "ok"})
    assert endpoint.json("/readyz") == (200, {"status": "ready", "failing": []})
    names = [check["check"] for check in endpoint.json("/readyz?verbose")[1]["checks"]]
    assert names == [
        *("metadata", "recovered", "accepting", "unfenced", "in_sync"),
        *("partitions", "disk", "descriptors"),
    ]
    status, version = endpoint.json("/version")
    assert (status, version["node_id"]) == (200, 1)


def test_requests_of_a_client_are_watched(broker: BrokerProcess, endpoint: Endpoint) -> None:
    def watch(*options: str) -> subprocess.Popen[str]:
        command = [LAKELOG, "debug", "requests", "--tail", "--http", endpoint.address]
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)

    def is_done() -> bool:
        producer.produce("watched", value=b"x")
        assert not producer.flush(60)
        return by_client.poll() is not None and by_api.poll() is not None

    begun = time.monotonic()
    by_client = watch("-n", "3", "--client", "the-watched", "-f", "json")
    by_api = watch("-n", "1", "--api", "produce")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "the-watched"})
    eventually(is_done)
    assert by_client.stdout is not None and by_api.stdout is not None
    lines = [json.loads(line) for line in by_client.stdout]
    assert len(lines) == 3
    assert {line["client_id"] for line in lines} == {"the-watched"}
    most_s = time.monotonic() - begun
    assert all(0 <= line["duration_s"] < most_s and line["size_bytes"] > 0 for line in lines)
    (line,) = by_api.stdout
    assert " Produce v" in line and "the-watched" in line
    for process in (by_client, by_api):
        assert process.wait() == 0
        process.stdout.close()  # type: ignore[union-attr]


def test_a_partition_that_cannot_be_used_is_no_readiness(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", 0, None, ("--http", "127.0.0.1:0")) as broker:
        with WireClient(broker.bootstrap) as client:
            create_topic(client, "damaged")
            produce(client, "damaged", batch_of(b"precious"))
        broker.stop()
        (broker.data / ".kafka_cleanshutdown").unlink()
        (log,) = broker.data.glob("damaged-0/*.log")
        log.write_bytes(log.read_bytes().replace(b"precious", b"worthless"[1:]))
        broker.start()
        endpoint = Endpoint(broker)
        status, answer = endpoint.json("/readyz")
        assert status == 503
        (failing,) = answer["failing"]
        assert failing["check"] == "partitions"
        assert failing["reason"].startswith("1 offline: damaged-0 (")
        assert endpoint.value("lakelog_offline_partitions") == 1
        assert endpoint.value("lakelog_ready") == 0
        assert endpoint.json("/healthz")[0] == 200


def test_others_need_leave_to_reach_it(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", 0, None, ("--http", "0.0.0.0:0"))
    broker.launch()
    assert broker.wait() == 2
    assert "LL0402" in broker.log()
    assert "--insecure" in broker.log()
