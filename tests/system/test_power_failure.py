"""A power failure under a real broker: only synced data survives.

Its calls to the operating system are recorded, up to a SIGKILL right after the last response, and
replayed on a disk that drops unsynced data. The next broker starts on the rest.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import BrokerProcess
from delivered import delivered
from recorded_disk import after_power_failure, read_calls

TOPIC = "orders"
COUNT = 60
TIMEOUT_S = 60
SMALL = {"batch.num.messages": 10}
"""Several batches in a segment."""
RECORDED = Path(__file__).parents[1] / "recorded_disk.py"


class RecordedBroker(BrokerProcess):
    """One whose file system calls are kept in `trace`."""

    @property
    def trace(self) -> Path:
        return self.data.parent / f"{self.data.name}.trace"

    def command(self) -> list[str]:
        _, *arguments = super().command()
        return [sys.executable, str(RECORDED), str(self.trace), str(self.data), *arguments]


def left_by(broker: RecordedBroker) -> Path:
    """Return a data folder with the files that survive a power failure of the broker."""
    disk = after_power_failure(broker.data, read_calls(broker.trace))
    folder = broker.data.with_name("left")
    for path in disk.files():
        target = folder / path.relative_to(broker.data)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(disk.read(path))
    for path in broker.data.glob("metadata.db*"):
        shutil.copy(path, folder)  # SQLite's own calls are not recorded
    return folder


def write(bootstrap: str) -> None:
    """Write two committed transactions, an aborted one, and records outside of transactions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 1, 1, config={"internal.segment.bytes": "3000"})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    errors: list[confluent_kafka.KafkaError | None] = []

    def send(producer: confluent_kafka.Producer, what: str) -> None:
        for number in range(COUNT):
            value = f"{what} {number:>60}".encode()
            producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "t", **SMALL}
    )
    producer.init_transactions(TIMEOUT_S)
    for what in ("first", "aborted", "second"):
        producer.begin_transaction()
        send(producer, what)
        is_aborted = what == "aborted"
        (producer.abort_transaction if is_aborted else producer.commit_transaction)(TIMEOUT_S)
    send(
        confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", **SMALL}), "plain"
    )
    assert not any(errors)


def read_all(bootstrap: str, group: str = "readers") -> list[str]:
    """The first word of each committed record, by a group that commits where it has come to.

    Nothing if it had come to the end before.
    """
    found: list[str] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    with closing(consumer):
        consumer.subscribe([TOPIC])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"nothing more after {len(found)} records"
            error = message.error()
            if error is None:
                found.append(delivered(message).value.split()[0].decode())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                if found:
                    consumer.commit(asynchronous=False)
                return found
            else:
                raise confluent_kafka.KafkaException(error)


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
def test_all_that_was_promised_is_there(tmp_path: Path, durability: str) -> None:
    """With `fsync` at any time, else after a clean stop."""
    settings = {"log.durability": durability}
    expected = [what for what in ("first", "second", "plain") for _ in range(COUNT)]
    with RecordedBroker(tmp_path / "data", settings=settings) as broker:
        write(broker.bootstrap)
        assert read_all(broker.bootstrap) == expected
        if durability == "fsync":
            broker.kill()
        else:
            broker.stop()
    with BrokerProcess(left_by(broker), settings=settings) as after:
        assert read_all(after.bootstrap) == []
        assert read_all(after.bootstrap, "others") == expected
