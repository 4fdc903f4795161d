"""Compacted topics as every client library sees them, in a broker that compacts all the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

from broker_process import BrokerProcess
from clients.adapters.aio import Aio
from clients.adapters.api import Client, Received, Sent
from clients.adapters.confluent import Confluent
from clients.adapters.kafka_python import KafkaPython
from clients.adapters.own import Own
from file_oracle import check_data_folder
from lakelog.storage.checkpoint import decode_offsets
from waiting import eventually

EAGER = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
CLIENTS: tuple[Callable[[str], Client], ...] = (Confluent, KafkaPython, Aio, Own)
WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("compaction") / "data"
    with BrokerProcess(data, settings={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker
        broker.stop()
        check_data_folder(broker.data, compacted=True)


def cleaned_offset(broker: BrokerProcess, topic: str) -> int:
    path = broker.data / "cleaner-offset-checkpoint"
    return decode_offsets(path.read_bytes()).get((topic, 0), 0) if path.exists() else 0


def await_cleaned(broker: BrokerProcess, topic: str, offset: int) -> None:
    eventually(lambda: cleaned_offset(broker, topic) >= offset, WAIT_S, "the log was compacted")


def _is_gone(process: Path) -> bool:
    return not process.exists()


def first_active(broker: BrokerProcess, topic: str) -> int:
    return max(int(path.stem) for path in (broker.data / f"{topic}-0").glob("*.log"))


def read_all(client: Client, topic: str, last_offset: int) -> list[Received]:
    """Read from the start to the record at `last_offset`."""
    received: list[Received] = []
    with closing(client.consumer()) as consumer:
        consumer.assign(topic, [0])

        def reached() -> bool:
            received.extend(consumer.poll(0.2))
            return bool(received) and received[-1].offset >= last_offset

        eventually(reached, WAIT_S, "the last record was read")
    return received


def write_rounds(client: Client, topic: str, rounds: int, keys: int = 40) -> int:
    """Each round gives every key a new value; half of the keys end deleted. Returns the end."""
    with closing(client.admin()) as admin:
        admin.create_topic(topic, 1, EAGER)
    batches = [
        [
            Sent(b"%d-%d" % (number, key) + b"." * 100, b"key-%d" % key, partition=0)
            for key in range(keys)
        ]
        for number in range(rounds)
    ]
    batches.append([Sent(None, b"key-%d" % key, partition=0) for key in range(0, keys, 2)])
    for records in batches:
        client.produce(topic, records)
    return sum(map(len, batches)) + write_filler(client, topic)


def write_filler(client: Client, topic: str) -> int:
    """Fill a segment, so that earlier records can be compacted. Return the count of records."""
    for _ in range(2):
        client.produce(topic, [Sent(b"f" * 3000, b"filler", partition=0) for _ in range(5)])
    return 10


@pytest.mark.parametrize("make", CLIENTS, ids=[make.name for make in CLIENTS])  # type: ignore[attr-defined]
def test_the_last_value_of_each_key_is_read(
    broker: BrokerProcess, make: Callable[[str], Client]
) -> None:
    client = make(broker.bootstrap)
    topic = f"compacted-{client.name}"
    end = write_rounds(client, topic, 12)
    await_cleaned(broker, topic, first_active(broker, topic))
    received = read_all(client, topic, end - 1)
    assert len(received) < 120
    offsets = [record.offset for record in received]
    assert offsets == sorted(set(offsets))
    last = {record.key: record.value for record in received}
    assert last[b"key-1"] == b"11-1" + b"." * 100
    assert all(last.get(b"key-%d" % key) is None for key in range(0, 40, 2))
    assert all(last[b"key-%d" % key] is not None for key in range(1, 40, 2))


def helpers_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def test_a_kill_in_the_middle_of_a_compaction(tmp_path: Path) -> None:
    """The helper dies with the broker, and the next start finds every key's last value once."""
    slow = {"log.cleaner.backoff.ms": "100", "log.cleaner.io.max.bytes.per.second": "20000"}
    with BrokerProcess(tmp_path / "data", settings=slow) as broker:
        client, topic = Confluent(broker.bootstrap), "killed"
        end = write_rounds(client, topic, 12)
        folder = broker.data / "killed-0"
        for _ in range(2):
            end += write_filler(client, topic)  # earlier records may be clean by now
            (helper,) = eventually(lambda: writing_helpers(broker, folder), WAIT_S, "it writes")
            broker.kill()
            process = Path(f"/proc/{helper}")
            eventually(partial(_is_gone, process), WAIT_S, "the helper is gone")
            broker.restart()
            assert not list(folder.glob("*.swap"))
            received = read_all(client, topic, end - 1)
            last = {record.key: record.value for record in received}
            assert {key for key, value in last.items() if value is not None} == {
                b"filler",
                *(b"key-%d" % key for key in range(1, 40, 2)),
            }
        broker.stop()
        check_data_folder(broker.data, compacted=True)


def writing_helpers(broker: BrokerProcess, folder: Path) -> list[int]:
    return helpers_of(broker.pid) if list(folder.glob("*.log.cleaned")) else []


def commit_at(broker: BrokerProcess, group: str, offset: int) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group}
    consumer = confluent_kafka.Consumer(settings)
    committed = confluent_kafka.TopicPartition("committed", 0, offset)
    consumer.commit(offsets=[committed], asynchronous=False)
    consumer.close()


def test_offsets_of_groups_are_compacted_too(tmp_path: Path) -> None:
    settings = {
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "offsets.topic.num.partitions": "1",
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        client = Confluent(broker.bootstrap)
        with closing(client.admin()) as admin:
            admin.create_topic("committed", 1)
        client.produce("committed", [Sent(b"%d" % number) for number in range(30)])
        with closing(client.consumer("group", "committed")) as consumer:
            consumed: list[Received] = []

            def has_committed_all() -> bool:
                if records := consumer.poll(1.0):
                    consumed.extend(records)
                    consumer.commit()
                return len(consumed) >= 30

            eventually(has_committed_all)
            with closing(client.admin()) as admin:
                admin.alter_topic_config("__consumer_offsets", {"internal.segment.bytes": "2000"})
            for offset in range(30):
                commit_at(broker, "other", offset)
        await_cleaned(broker, "__consumer_offsets", 10)
        broker.stop()
        broker.restart()
        with closing(client.admin()) as admin:
            assert admin.committed("other", "committed") == {0: 29}
        client.produce("committed", [Sent(b"after")])
        with closing(client.consumer("group", "committed")) as consumer:
            received = eventually(lambda: consumer.poll(0.5), WAIT_S)
        assert [record.value for record in received] == [b"after"]
