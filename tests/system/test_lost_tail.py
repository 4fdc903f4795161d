"""A power failure that takes the end of a log: a consumer that was further learns of it (KIP-320).

Otherwise it would go on at its offset as if nothing had happened, once others have written that
far, and never see what came in the place of the lost records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker_process import BrokerProcess, eventually
from lakelog.records.batch import iter_batches
from lakelog.storage.names import LOG
from wire_client import WireClient, batch_of, create_topic, produce

KEPT, READ = 10, 20
RECONNECTING = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


def write(broker: BrokerProcess, what: str, count: int) -> None:
    with WireClient(broker.bootstrap) as wire:
        for number in range(count):
            answer = produce(wire, "orders", batch_of(f"{what} {number}".encode()))
            assert answer.error_code == 0, answer


def lose_the_tail(broker: BrokerProcess) -> None:
    """What a power failure may leave of a log that was never synced."""
    broker.kill()
    path = broker.data / "orders-0" / f"{0:020d}{LOG}"
    data = path.read_bytes()
    sizes = [header.size for header, _ in iter_batches(data)]
    assert len(sizes) == READ
    path.write_bytes(data[: sum(sizes[:KEPT])])
    broker.restart()


class Reader:
    """A consumer without a group, which is told what it is told."""

    def __init__(self, broker: BrokerProcess, reset: str) -> None:
        self.values: list[str] = []
        self.errors: list[Any] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "log_level": 0,
            **RECONNECTING,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])

    def close(self) -> None:
        self._consumer.close()

    def poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.values.append(message.value().decode())
        elif error.code() != confluent_kafka.KafkaError._TRANSPORT:
            self.errors.append(error)

    def read(self, count: int) -> list[str]:
        """The next values, that many."""
        self.values.clear()

        def enough() -> bool:
            self.poll()
            return len(self.values) >= count

        eventually(enough, 30.0, f"{count} records")
        return self.values

    def error(self) -> Any:
        def told() -> Any:
            self.poll()
            return self.errors and self.errors[0]

        return eventually(told, 30.0, "an error")


def values(what: str, *numbers: int) -> list[str]:
    return [f"{what} {number}" for number in range(*numbers)]


@pytest.mark.parametrize("written", [5, 30], ids=["not so far", "further than before"])
def test_a_consumer_that_resets_reads_on_where_the_logs_differ(
    broker: BrokerProcess, written: int
) -> None:
    with WireClient(broker.bootstrap) as wire:
        create_topic(wire, "orders")
    write(broker, "old", READ)
    with closing(Reader(broker, "latest")) as reader:
        assert reader.read(READ) == values("old", READ)
        lose_the_tail(broker)
        write(broker, "new", written)
        assert reader.read(written) == values("new", written)
        assert reader.errors == []


def test_a_consumer_that_does_not_is_told(broker: BrokerProcess) -> None:
    with WireClient(broker.bootstrap) as wire:
        create_topic(wire, "orders")
    write(broker, "old", READ)
    with closing(Reader(broker, "error")) as reader:
        assert reader.read(READ) == values("old", READ)
        lose_the_tail(broker)
        write(broker, "new", 30)
        error = reader.error()
        assert error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET, error
        assert f"truncation detected at offset {READ}" in error.str()
        assert f"end offset is {KEPT} " in error.str()
        assert reader.values == values("old", READ)
