"""How long, and how far, the open batches of a sink hold back the records of other producers.

A task of a sink writes one record to a partition and leaves its transaction open, as during a
micro-batch. Another producer writes single records to the same partition. A consumer that reads
committed records waits for the batch. In the last row the task's process is gone, and nothing ends
its transaction but the timeout.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from threading import Thread
from typing import NamedTuple

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from brokers import LakelogBroker, running  # noqa: E402
from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

from lakelog.client.admin import Admin  # noqa: E402
from lakelog.client.producer import Producer  # noqa: E402
from lakelog.client.sink import Sink, SinkProducer  # noqa: E402

_WAIT_S = 120.0


class _Batch(NamedTuple):
    """One row: a batch that is open for some seconds, and then committed or abandoned."""

    name: str
    open_s: float = 0.0
    timeout_ms: int = 60_000
    commits: bool = True

    @property
    def ended_by(self) -> str:
        if not self.open_s:
            return ""
        return "its commit" if self.commits else f"its timeout of {self.timeout_ms / 1000:.0f} s"


_BATCHES = (
    _Batch("none"),
    _Batch("open for 0.3 s", 0.3),
    _Batch("open for 2 s", 2.0),
    _Batch("open for 10 s", 10.0),
    _Batch("abandoned", 5.0, 5_000, commits=False),
)


class Held(NamedTuple):
    """Records of another producer that a batch held back.

    held: the greatest number of records that were acknowledged and not visible. median_s,
    longest_s: from acknowledged to visible. after_s: from the end of the batch, or from the time of
    its timeout, until all earlier records were visible.
    """

    held: int
    median_s: float
    longest_s: float
    after_s: float


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/open_batches.py", description=__doc__)
    parser.add_argument("--rate", type=int, default=100, help="records/s of the other producer")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


class _Others:
    """The other producer, and the consumer that reads committed records."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._topic = topic
        self._rate = rate
        self._producer = Producer(bootstrap, linger_ms=0)
        self._acknowledged: dict[bytes, float] = {}
        self._seen: dict[bytes, float] = {}
        self._held = 0
        self._ends = self._is_sent = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "open-batches",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._threads = [Thread(target=self._send), Thread(target=self._read)]
        for thread in self._threads:
            thread.start()
        while not self._seen:
            time.sleep(0.01)

    def _send(self) -> None:
        number = 0
        while not self._ends:
            value = b"other %d" % number
            self._producer.send(self._topic, value, partition=0).result()
            self._acknowledged[value] = time.monotonic()
            self._held = max(self._held, len(self._acknowledged) - len(self._seen))
            number += 1
            time.sleep(1 / self._rate)

    def _read(self) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not self._is_sent or len(self._seen) < len(self._acknowledged):
            message = self._consumer.poll(0.05)
            value = None if message is None else message.value()
            if value is not None and value.startswith(b"other"):
                self._seen[value] = time.monotonic()
            assert time.monotonic() < deadline, "records did not become visible"

    def finish(self, ended: float) -> Held:
        """Stop writing; return the figures when all records are visible."""
        sending, reading = self._threads
        self._ends = True
        sending.join()
        self._is_sent = True
        reading.join()
        self._consumer.close()
        self._producer.close()
        waits = [self._seen[value] - at for value, at in self._acknowledged.items()]
        before = [self._seen[value] for value, at in self._acknowledged.items() if at < ended]
        return Held(self._held, median(waits), max(waits), max(max(before) - ended, 0.0))


def _measure(bootstrap: str, batch: _Batch, rate: int) -> Held:
    topic = batch.name.replace(" ", "-")
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=1)
    producer = SinkProducer(bootstrap, transaction_timeout_ms=batch.timeout_ms)
    with Sink(bootstrap, f"sink-{topic}") as sink:
        run = sink.begin("query", "run", 0)
        others = _Others(bootstrap, topic, rate)
        if batch.open_s:
            producer.open(run, 0, 0, 0)
            producer.send(topic, b"task", partition=0)
            receipt = producer.finish()
            time.sleep(batch.open_s)
            if batch.commits:
                sink.commit(run, 0, [receipt])
        ended = time.monotonic()
        time.sleep(0.5)
        held = others.finish(ended)
    producer.close()
    return held


def _tables(options: argparse.Namespace, folder: Path) -> list[Table]:
    broker = LakelogBroker(folder / "lakelog")
    rows: list[list[str]] = []
    with running([broker]):
        for batch in _BATCHES:
            held = _measure(f"127.0.0.1:{broker.port}", batch, options.rate)
            note(f"{batch.name}: {held}")
            seconds = (f"{each:.2f}" for each in held[1:])
            rows.append([batch.name, batch.ended_by, str(held.held), *seconds])
    columns = ("batch", "ended by", "records held", "median s", "longest s", "all visible after s")
    return [Table(columns, rows, len(rows))]


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            f"Another producer writes {options.rate} records/s to the partition of an open batch. "
            "Records held: acknowledged and not visible to a consumer that reads committed "
            "records. Seconds: from acknowledged to visible, and from the end of the batch until "
            "all earlier records were visible."
        )

    frame = Benchmark("open_batches", "open batches of a sink", about)
    return frame.run(argv, options, lambda folder: _tables(options, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
