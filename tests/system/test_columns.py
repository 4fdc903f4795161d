"""Tables sent and polled as columns, against other clients and against `poll`."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from lakelog.client import Client, connect
from lakelog.client.consumer import Consumer, FetchLimits
from lakelog.client.producer import WrittenRows
from lakelog.records.compression import Codec

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
START_MS = 1_700_000_000_000


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with connect(bootstrap) as client:
        yield client


@pytest.fixture
def orders(client: Client) -> str:
    """An empty topic of three partitions."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    client.admin.topics.create(name, partitions=3)
    return name


def table_of(count: int, seed: int = 7) -> pa.Table:
    chance = random.Random(seed)
    maybe = [None, b"", b"key", os.urandom(9)]
    keys = [chance.choice(maybe) and b"%d" % chance.randrange(50) for _ in range(count)]
    headers = [chance.choice([None, [], [{"key": "é", "value": b"x"}]]) for _ in range(count)]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": [b"%d-" % n + chance.randbytes(chance.randrange(100)) for n in range(count)],
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array(range(START_MS, START_MS + count), pa.timestamp("ms", "UTC")),
        }
    )


def confluent_records(bootstrap: str, topic: str, count: int) -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    partitions = [confluent_kafka.TopicPartition(topic, n, 0) for n in range(3)]
    consumer.assign(partitions)
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count, 60)
        assert messages, "all records arrive"
        found += messages
    consumer.close()
    return found


def all_rows(consumer: Consumer, count: int, **settings: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        rows = consumer.poll_arrow(60.0, **settings).to_pylist()
        assert rows, "all records arrive"
        found += rows
    return found


def by_partition(rows: list[dict[str, Any]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        row_facts = row["offset"], row["key"], row["value"]
        found.setdefault(row["partition"], []).append(row_facts)
    return found


@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Codec])
def test_another_library_reads_the_rows_of_a_table(
    client: Client, bootstrap: str, orders: str, codec: str
) -> None:
    table = table_of(3000)
    with client.producer(compression=codec, batch_bytes=20_000) as producer:
        written_parts = producer.send_table(table, orders).result(120)
    assert sum(written.records for written in written_parts) == 3000

    found = confluent_records(bootstrap, orders, 3000)

    expected = sorted(table.to_pylist(), key=lambda row: row["value"])
    for message, row in zip(sorted(found, key=lambda m: m.value()), expected, strict=True):
        pairs = [(pair["key"], pair["value"]) for pair in row["headers"] or ()]
        assert (message.key(), message.value(), message.headers() or []) == (
            row["key"], row["value"], pairs,
        )  # fmt: skip
        assert message.timestamp()[1] == int(row["timestamp"].timestamp() * 1000 + 0.5)


def test_keys_have_the_partitions_of_another_library(
    client: Client, bootstrap: str, orders: str
) -> None:
    keys = [b"key %d" % n for n in range(300)]
    theirs = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
    )
    for key in keys:
        theirs.produce(orders, key, key)
    theirs.flush(60)
    with client.producer() as producer:
        producer.send_table(pa.table({"key": keys, "value": keys}), orders)
    found = confluent_records(bootstrap, orders, 600)
    key_partitions = {(message.key(), message.partition()) for message in found}
    assert len(key_partitions) == 300


def test_columns_equal_records_in_every_codec(client: Client, orders: str) -> None:
    for codec in Codec:
        with client.producer(compression=codec.name.lower(), batch_bytes=5000) as producer:
            producer.send_table(table_of(500, seed=codec), orders)
    with client.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([(orders, n) for n in range(3)])
        rows = all_rows(consumer, 2500, max_records=701, max_bytes=40_000)
        for partition in range(3):
            consumer.seek((orders, partition), 0)
        records: list[dict[str, Any]] = []
        while len(records) < 2500:
            records += [record._asdict() for record in consumer.poll(60.0)]
    assert by_partition(rows) == by_partition(records)
    offsets = [row_facts[0] for row_facts in by_partition(rows)[0]]
    assert offsets == list(range(len(offsets)))


def test_only_committed_rows(client: Client, orders: str) -> None:
    rows = pa.table({"value": [b"%d" % n for n in range(100)], "partition": [0] * 100})
    with client.transactional_producer(f"t-{orders}") as producer:
        for commit in (True, False, True):
            producer.begin()
            producer.send_table(rows, orders)
            producer.flush(60)
            producer.commit() if commit else producer.abort()
        with client.consumer(
            group=orders, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([(orders, 0)])
            found = all_rows(consumer, 200)
            assert [row["value"] for row in found] == [b"%d" % n for n in range(100)] * 2
            producer.begin()
            producer.send_table(rows, orders)
            producer.flush(60)
            assert consumer.poll_arrow(0.5).num_rows == 0
            consumer.commit()
            # A marker follows the last record.
            assert consumer.committed([(orders, 0)])[orders, 0].offset == 303
            producer.commit()
            assert len(all_rows(consumer, 100)) == 100


def test_a_new_member_continues_at_the_committed_rows(client: Client, orders: str) -> None:
    with client.producer() as producer:
        producer.send_table(table_of(3000), orders)
    settings: dict[str, Any] = {"group": orders, "auto_offset_reset": "earliest"}
    first = client.consumer(**settings)
    first.subscribe([orders])
    seen = [row["value"] for row in all_rows(first, 500, columns=["value"], max_records=500)]
    first.commit()
    # These rows are not committed: the next member gets them again.
    assert all_rows(first, 1, columns=["value"], max_records=100)
    second = client.consumer(**settings)
    second.subscribe([orders])
    first.close()
    seen += [row["value"] for row in all_rows(second, 3000 - len(seen), columns=["value"])]
    second.close()
    assert sorted(seen) == sorted(table_of(3000)["value"].to_pylist())


def test_a_log_that_was_trimmed_continues_at_its_start(client: Client, orders: str) -> None:
    rows = pa.table({"value": [b"%d" % n for n in range(1000)], "partition": [0] * 1000})
    limits = FetchLimits(partition_max_bytes=2000)
    with client.producer(batch_bytes=1000) as producer:
        written_parts = producer.send_table(rows, orders).result(60)
    assert written_parts[0] == WrittenRows(orders, 0, 0, written_parts[0].records)
    assert written_parts[1] == WrittenRows(
        orders, 0, written_parts[0].records, written_parts[1].records
    )
    with client.consumer(auto_offset_reset="earliest", limits=limits) as consumer:
        consumer.assign([(orders, 0)])
        assert consumer.poll_arrow(60.0, max_records=10)["offset"][9].as_py() == 9
        client.admin.topics.delete_records({(orders, 0): 900})
        consumer.seek((orders, 0), 100)
        assert consumer.poll_arrow(60.0)["offset"][0].as_py() == 900
        consumer.seek_to_time((orders, 0), 2**60)
        assert consumer.poll_arrow(0.2).num_rows == 0
