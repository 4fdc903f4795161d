"""Records as columns, beside the Python clients of Kafka: CPU time a record, 100 B of random bytes.

Two parts. "alone" decodes and encodes record batches in memory, checksums included, without a
broker: the columns of lakelog (compiled and in plain Python), and the batch classes of aiokafka (in
C) and kafka-python; the codec of confluent-kafka cannot be called. Each has the records of one
response, 4 MiB, again and again. "client" sends to and reads from
a lakelog broker on loopback, and counts all threads of the client's process: lakelog's tables, and
the usual loop over records with each client. Every round runs all of them in turn; the figure is
the median of the rounds. Records have no key.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

import aiokafka  # noqa: E402
import confluent_kafka  # noqa: E402
import kafka  # noqa: E402
import pyarrow as pa  # noqa: E402
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder  # noqa: E402
from aiokafka.record.memory_records import MemoryRecords as AioRecords  # noqa: E402
from benchmark import Benchmark  # noqa: E402
from kafka.record.default_records import DefaultRecordBatchBuilder as PurePythonBuilder  # noqa: E402
from kafka.record.memory_records import MemoryRecords as PurePythonRecords  # noqa: E402
from rounds import note  # noqa: E402
from tables import Table  # noqa: E402

import lakelog.testing  # noqa: E402
from lakelog.client import connect  # noqa: E402
from lakelog.columns.decoding.decode import decode_columns  # noqa: E402
from lakelog.columns.encoding.encode import RowEncoder  # noqa: E402
from lakelog.records.batch import BatchHeader, check_crc, iter_batches  # noqa: E402

_SIZE = 100
_BATCH_BYTES = 128 << 10
_NOW_MS = 1_700_000_000_000
_ALL = ("key", "value", "offset", "timestamp", "timestampType", "headers")
_COLUMNS = ("work", "measured", "ns of CPU a record", "records/CPU-s", "of the best other")
_RESPONSE_RECORDS = 36_000
"""A response of 4 MiB. Decoders get it from the processor's caches, where receiving has left it."""
_SLOW = 10
"""Plain Python does a tenth of the records, so that a round takes seconds."""
_FAST = 8
"""Compiled loops do all records several times, so that a round is not over before it is warm."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to do `work` on `count` records. is_own: of lakelog."""

    work: str
    name: str
    count: int
    run: Callable[[], int]
    is_own: bool = False


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/columns.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=500_000, help="of each way, a round")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    return parser.parse_args(argv)


def _encode(builder: Any, values: list[bytes]) -> list[bytes]:
    """Build batches as a client does: one call for each record."""
    batches, done = [], 0
    while done < len(values):
        batch = builder(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=_BATCH_BYTES,
        )
        place = 0
        while done < len(values):
            added = batch.append(place, timestamp=_NOW_MS, key=None, value=values[done], headers=[])
            if added is None:
                break
            place, done = place + 1, done + 1
        batches.append(bytes(batch.build()))
    return batches


def _decode(records: Any, batches: list[bytes]) -> int:
    """Read offset, timestamp, key and value of each record."""
    found = 0
    for data in batches:
        inside = records(data)
        while inside.has_next():
            batch = inside.next_batch()
            assert batch.validate_crc()
            for record in batch:
                place = (record.offset, record.timestamp, record.key, record.value)
                found += len(place[3]) == _SIZE
    return found


def _encode_table(table: pa.Table, *, compiled: bool) -> int:
    encoder = RowEncoder(1, batch_bytes=_BATCH_BYTES, compiled=compiled)
    found = 0
    for batch in encoder.encode(table.to_batches(), _NOW_MS):
        batch.build()
        found += batch.count
    return found


def _decode_table(batches: list[bytes], columns: Sequence[str], *, compiled: bool) -> int:
    """Decode as the Spark source does: the checksums of some batches, then their records."""

    def checked() -> Iterator[tuple[BatchHeader, memoryview]]:
        for data in batches:
            for header, batch in iter_batches(data):
                assert check_crc(batch, 0, header)
                yield header, batch

    return sum(each.num_rows for each in decode_columns(checked(), columns, compiled=compiled))


def _ways_alone(count: int) -> Iterator[Way]:
    """Yield ways for about `count` records: the records of one response, again and again."""
    values = [os.urandom(_SIZE) for _ in range(_RESPONSE_RECORDS)]
    table = pa.table({"value": values})
    data = _encode(AioBuilder, values)
    few = values[: _RESPONSE_RECORDS // _SLOW]
    little = _encode(AioBuilder, few)
    times = max(1, count // _RESPONSE_RECORDS)

    def way(work: str, name: str, run: Callable[[], int]) -> Way:
        return Way(work, name, times * _RESPONSE_RECORDS, _again(run, times))

    def own(work: str, name: str, run: Callable[[], int]) -> Way:
        often = times * _FAST
        return Way(work, name, often * _RESPONSE_RECORDS, _again(run, often), is_own=True)

    def slow(work: str, name: str, run: Callable[[], int], *, is_own: bool = False) -> Way:
        return Way(work, name, times * len(few), _again(run, times), is_own)

    work = "decode alone"
    wanted: dict[str, Sequence[str]] = {"columns=value": ["value"], "all columns": _ALL}
    for name, columns in wanted.items():
        run = partial(_decode_table, data, columns, compiled=True)
        yield own(work, f"lakelog, {name}", run)
    plain = partial(_decode_table, little, _ALL, compiled=False)
    yield slow(work, "lakelog without Numba", plain, is_own=True)
    yield way(work, "aiokafka", lambda: _decode(AioRecords, data))
    yield slow(work, "kafka-python", lambda: _decode(PurePythonRecords, little))
    work = "encode alone"
    yield own(work, "lakelog", partial(_encode_table, table, compiled=True))
    plain = partial(_encode_table, table[: len(few)], compiled=False)
    yield slow(work, "lakelog without Numba", plain, is_own=True)
    yield way(work, "aiokafka", lambda: len(_encode(AioBuilder, values)) and len(values))
    yield slow(work, "kafka-python", lambda: len(_encode(PurePythonBuilder, few)) and len(few))


def _again(run: Callable[[], int], times: int) -> Callable[[], int]:
    """Return a function that calls `run` several times and adds its results."""
    return lambda: sum(run() for _ in range(times))


class _Clients:
    """Each client's usual way to send and to read records of one topic."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self._bootstrap = bootstrap
        self._values = [os.urandom(_SIZE) for _ in range(count)]
        self._table = pa.table({"value": self._values})
        self._full, self._target = self._topic(), self._topic()
        with connect(bootstrap) as client, client.producer() as producer:
            producer.send_table(self._table, self._full)

    def ways(self) -> Iterator[Way]:
        count, few = len(self._values), len(self._values) // _SLOW
        work = "read as a client"
        wanted: dict[str, list[str] | None] = {"columns=value": ["value"], "all columns": None}
        for name, columns in wanted.items():
            run = partial(self._read_columns, count, columns)
            yield Way(work, f"lakelog, {name}", count, run, True)
        yield Way(work, "confluent-kafka", count, lambda: self._read_confluent(count))
        yield Way(work, "aiokafka", count, lambda: asyncio.run(self._read_aiokafka(count)))
        yield Way(work, "kafka-python", few, lambda: self._read_kafka_python(few))
        work = "send as a client"
        yield Way(work, "lakelog", count, self._send_table, True)
        yield Way(work, "confluent-kafka", count, lambda: self._send_confluent(count))
        yield Way(work, "aiokafka", few, lambda: asyncio.run(self._send_aiokafka(few)))
        yield Way(work, "kafka-python", few, lambda: self._send_kafka_python(few))

    def _topic(self) -> str:
        name = f"columns-{uuid.uuid4().hex[:8]}"
        with connect(self._bootstrap) as client:
            client.admin.topics.create(name, partitions=1)
        return name

    def _read_columns(self, count: int, columns: list[str] | None) -> int:
        with (
            connect(self._bootstrap) as client,
            client.consumer(auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([(self._full, 0)])
            found = 0
            while found < count:
                found += consumer.poll_arrow(10.0, columns=columns).num_rows
        return found

    def _read_confluent(self, count: int) -> int:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "bench", "check.crcs": True}
        )
        consumer.assign([confluent_kafka.TopicPartition(self._full, 0, 0)])
        found = 0
        while found < count:
            for message in consumer.consume(10_000, 10.0):
                place = (message.offset(), message.timestamp(), message.key(), message.value())
                found += place[3] is not None
        consumer.close()
        return found

    async def _read_aiokafka(self, count: int) -> int:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        place = aiokafka.TopicPartition(self._full, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found = 0
        while found < count:
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                found += sum(len(record.value) == _SIZE for record in records)
        await consumer.stop()
        return found

    def _read_kafka_python(self, count: int) -> int:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self._bootstrap)
        place = kafka.TopicPartition(self._full, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found = 0
        while found < count:
            for records in consumer.poll(10_000, max_records=10_000).values():
                found += sum(len(record.value) == _SIZE for record in records)
        consumer.close()
        return found

    def _send_table(self) -> int:
        with connect(self._bootstrap) as client, client.producer() as producer:
            return sum(
                each.records for each in producer.send_table(self._table, self._target).result()
            )

    def _send_confluent(self, count: int) -> int:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 10_000_000,
                "batch.size": _BATCH_BYTES,
            }
        )
        for value in self._values[:count]:
            producer.produce(self._target, value, partition=0)
        assert producer.flush(120) == 0
        return count

    async def _send_aiokafka(self, count: int) -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            max_batch_size=_BATCH_BYTES,
        )
        await producer.start()
        for value in self._values[:count]:
            await producer.send(self._target, value, partition=0)
        await producer.stop()
        return count

    def _send_kafka_python(self, count: int) -> int:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=True, batch_size=_BATCH_BYTES
        )
        for value in self._values[:count]:
            producer.send(self._target, value, partition=0)
        producer.flush()
        producer.close()
        return count


def _rounds(ways: list[Way], rounds: int) -> Iterator[Table]:
    """Yield a table for each work: medians of the rounds, after a round to warm up."""
    figures: dict[Way, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in ways:
            before = time.process_time()
            done = way.run()
            spent = time.process_time() - before
            assert done >= way.count, f"{way.name}: {done} of {way.count} records"
            if number:
                figures[way].append(spent / way.count * 1e9)
        note(f"round {number} of {rounds}")
    for work in dict.fromkeys(way.work for way in ways):
        of_work = {way: median(figures[way]) for way in ways if way.work == work}
        best = min(spent for way, spent in of_work.items() if not way.is_own)
        rows = [
            [
                work,
                way.name,
                f"{spent:,.0f}",
                f"{1e9 / spent:,.0f}",
                f"{best / spent:.1f} x" if way.is_own else "",
            ]
            for way, spent in of_work.items()
        ]
        yield Table(_COLUMNS, rows, len(rows))


def _measure(options: argparse.Namespace) -> Iterator[Table]:
    yield from _rounds(list(_ways_alone(options.records)), options.rounds)
    with lakelog.testing.broker() as broker:
        clients = _Clients(broker.bootstrap_servers, options.records)
        yield from _rounds(list(clients.ways()), options.rounds)


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)

    def about() -> str:
        return (
            "CPU time of one process (user and system, all threads), records of "
            f"{_SIZE} B of random bytes without keys, batches of {_BATCH_BYTES >> 10} KiB, no "
            f"compression, medians of {options.rounds} interleaved rounds."
        )

    return Benchmark("columns", "columns", about).run(argv, options, lambda _: _measure(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
