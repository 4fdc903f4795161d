"""Damaged segments: below the recovery point corruption, in the unflushed tail a cut."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker_process import LAKELOG, BrokerProcess
from delivered import delivered
from file_oracle import check_data_folder
from kafka_jars import require
from lakelog.base.errors import ErrorCode
from lakelog.client.consumer import Consumer
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, fetch, produce

VALUE = b"the value that is going to be damaged"


TOPICS = {"damaged": 1, "intact": 1, "indexed": 6}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a killed broker: one record of each partition below the recovery point, and
    one above it."""
    with BrokerProcess(tmp_path_factory.mktemp("killed") / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            for topic, partitions in TOPICS.items():
                create_topic(client, topic, partitions)
            _produce_everywhere(client, b"below: " + VALUE)
        broker.stop()
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            _produce_everywhere(client, b"above: " + VALUE)
        broker.kill()
    return broker.data


def _produce_everywhere(client: WireClient, value: bytes) -> None:
    for topic, partitions in TOPICS.items():
        for index in range(partitions):
            assert produce(client, topic, batch_of(value), partition=index).error_code == 0


@pytest.fixture
def broker(tmp_path: Path, killed: Path) -> Iterator[BrokerProcess]:
    """Not started yet, on a copy of that folder."""
    broker = BrokerProcess(shutil.copytree(killed, tmp_path / "data"))
    yield broker
    broker.kill()


def _log(broker: BrokerProcess, topic: str = "damaged") -> Path:
    return broker.data / f"{topic}-0" / f"{0:020}.log"


def _flip(path: Path, at: bytes) -> bytes:
    """Changes one bit of the record that contains `at`; the file as it is then."""
    content = bytearray(path.read_bytes())
    content[content.index(at)] ^= 1
    path.write_bytes(content)
    return bytes(content)


def _check_intact(client: WireClient) -> None:
    records = bytes(fetch(client, "intact", 0).records)
    assert b"below: " + VALUE in records
    assert b"above: " + VALUE in records
    assert produce(client, "intact", batch_of(b"more")).base_offset == 2


def test_below_the_recovery_point_the_partition_goes_offline(broker: BrokerProcess) -> None:
    content = _flip(_log(broker), b"below: ")
    broker.start()
    assert "damaged-0" in broker.log()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).error_code == 56
        assert produce(client, "damaged", batch_of(b"x")).error_code == 56
        _check_intact(client)
    command = [LAKELOG, "cluster", "health", "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "1 offline: damaged-0 (" in done.stdout
    (described,) = _shown(broker, "topic", "describe", "damaged", "--offline")
    (partition,) = described["partitions"]
    assert (partition["leader"], partition["problem"]) == (None, "offline")
    assert partition["offline_replicas"] == partition["replicas"]
    broker.stop(clean=False)
    assert _log(broker).read_bytes() == content


def test_a_producer_continues_when_the_log_is_mended(broker: BrokerProcess) -> None:
    intact = _log(broker).read_bytes()
    _flip(_log(broker), b"below: ")
    broker.start()
    refused: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("damaged", b"waits", on_delivery=lambda error, _: refused.append(error))
    metadata = producer.list_topics("damaged", timeout=30).topics["damaged"].partitions[0]
    assert metadata.leader == -1
    broker.stop(clean=False)
    _log(broker).write_bytes(intact)
    broker.restart()
    assert producer.flush(60) == 0
    assert refused == [None]
    with WireClient(broker.bootstrap) as client:
        assert b"waits" in bytes(fetch(client, "damaged", 2).records)


def test_lags_are_shown_beside_a_partition_that_is_offline(broker: BrokerProcess) -> None:
    _flip(_log(broker), b"below: ")
    broker.start()
    for group, topics in {"one": ["intact"], "both": ["intact", "damaged"]}.items():
        positions = [confluent_kafka.TopicPartition(topic, 0, 1) for topic in topics]
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group}
        )
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()
    listed = {each["group"]: each["lag"] for each in _shown(broker, "group", "list")}
    assert listed == {"one": 1, "both": None}
    (described,) = _shown(broker, "group", "describe", "both")
    assert {each["topic"]: each["lag"] for each in described["offsets"]} == {
        "intact": 1,
        "damaged": None,
    }


def _shown(broker: BrokerProcess, *words: str) -> list[dict[str, Any]]:
    """Return the JSON output of a command."""
    command = [LAKELOG, *words, "-f", "json", "-b", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    return shown if isinstance(shown, list) else [shown]


@pytest.mark.java
def test_in_the_tail_the_log_is_cut_and_the_rest_kept_aside(broker: BrokerProcess) -> None:
    require("java")
    content = _flip(_log(broker), b"above: ")
    tail = content[content.index(VALUE) + len(VALUE) + 1 :]
    broker.start()
    assert "damaged" in broker.log()
    with WireClient(broker.bootstrap) as client:
        answer = fetch(client, "damaged", 0)
        assert answer.high_watermark == 1
        assert b"below: " + VALUE in bytes(answer.records)
        assert produce(client, "damaged", batch_of(b"after the cut")).base_offset == 1
        _check_intact(client)
    broker.stop()
    (aside,) = _log(broker).parent.glob("*.cut")
    assert aside.read_bytes() == tail
    assert b"after the cut" in _log(broker).read_bytes()
    check_data_folder(broker.data)


def test_a_torn_write_is_cut(broker: BrokerProcess) -> None:
    path = _log(broker)
    path.write_bytes(path.read_bytes()[:-7])
    broker.start()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).high_watermark == 1
        assert produce(client, "damaged", batch_of(b"x")).base_offset == 1
        _check_intact(client)


def test_damaged_indexes_are_rebuilt(broker: BrokerProcess) -> None:
    for index in range(6):
        path = (broker.data / f"indexed-{index}" / f"{0:020}").with_suffix(
            ".index" if index < 3 else ".timeindex"
        )
        if index % 3 == 0:
            path.write_bytes(b"\xff" * 64)
        elif index % 3 == 1:
            path.write_bytes(b"\x00" * 7)
        else:
            path.unlink()
    broker.start()
    with WireClient(broker.bootstrap) as client:
        for index in range(6):
            for offset in range(2):
                answer = fetch(client, "indexed", offset, partition=index)
                assert (answer.error_code, answer.high_watermark) == (0, 2), index
                assert VALUE in bytes(answer.records)


def test_a_log_that_is_gone_is_not_an_empty_log(broker: BrokerProcess) -> None:
    _log(broker).unlink()
    broker.start()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).error_code == 56
        _check_intact(client)


def test_a_consumer_gets_no_records_damaged_while_the_broker_was_down(
    tmp_path: Path,
) -> None:
    """In a sealed segment, which no start reads. The consumer itself checks nothing."""
    values = [b"%03d" % number + VALUE for number in range(60)]
    with BrokerProcess(tmp_path / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            sizes = {"internal.segment.bytes": "2000", "index.interval.bytes": "300"}
            create_topic(client, "sealed", 1, sizes)
            for value in values:
                produce(client, "sealed", batch_of(value))
        broker.stop()
        (path, *_) = sorted((broker.data / "sealed-0").glob("*.log"))
        _flip(path, values[7])
        broker.restart()
        seen, error = _consume(broker, "sealed", 0)
        assert seen == values[: len(seen)]
        assert 0 < len(seen) <= 7
        assert error == ErrorCode.CORRUPT_MESSAGE
        assert path.name in broker.log()
        assert _consume(broker, "sealed", 20, count=40) == (values[20:], None)


def _consume(
    broker: BrokerProcess, topic: str, offset: int, count: int = 1000
) -> tuple[list[bytes], int | None]:
    """So many values, or those up to the first error, and its code."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "check.crcs": False}
    )
    seen: list[bytes] = []
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])

        errors: list[int] = []

        def is_over() -> bool:
            message = consumer.poll(0.2)
            if message is None:
                return False
            error = message.error()
            if error is None:
                seen.append(delivered(message).value)
            else:
                errors.append(error.code())
            return bool(errors) or len(seen) == count

        eventually(is_over)
    return seen, errors[0] if errors else None


def test_a_folder_that_no_topic_knows_is_kept(broker: BrokerProcess) -> None:
    folder = _log(broker).parent
    stranger = folder.with_name("stranger-0")
    stranger.mkdir()
    (stranger / f"{0:020}.log").write_bytes(_log(broker).read_bytes())
    (stranger / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABA")
    broker.start()
    broker.stop()
    (stray,) = broker.data.glob("stranger-0*")
    assert stray.name.endswith("-stray")
    assert (stray / f"{0:020}.log").exists()


def test_a_consumer_reads_on_beside_a_partition_that_goes_offline(broker: BrokerProcess) -> None:
    """After a restart it asks of each partition where the epoch ends that it has read."""
    partitions = [("damaged", 0), ("intact", 0)]
    broker.start()
    with Consumer(broker.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        read = 0
        while read < 4:
            read += len(consumer.poll(10))
        consumer.commit()
    broker.kill()
    _flip(_log(broker), b"below: ")
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert produce(client, "intact", batch_of(b"more")).error_code == 0

    with Consumer(broker.bootstrap, group="g", timeout_s=5) as consumer:
        consumer.assign(partitions)
        records = eventually(lambda: consumer.poll(1))
        assert [(record.topic, record.value) for record in records] == [("intact", b"more")]
        assert consumer.trouble is None or "damaged-0" in str(consumer.trouble.error)
