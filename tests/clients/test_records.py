"""Each library reads the records of every other, stored as that library sent them."""

from __future__ import annotations

import itertools
import random
import time
from contextlib import closing

import pytest

from clients.adapters.api import Admin, Client, Sent
from clients.reading import poll_count, read
from lakelog.records.compression import Codec
from wire_client import stored_batches

START_MS = int(time.time() * 1000) - 3_600_000


@pytest.mark.moving
def test_records_come_back_in_order(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 3)
    sent = [Sent(f"value {i}".encode(), f"key {i}".encode(), partition=i % 3) for i in range(300)]

    positions = client.produce(name, sent)

    assert positions == [(i % 3, i // 3) for i in range(300)]
    received = read(client, name, 300, (0, 1, 2))
    for index in range(3):
        of_it = [(r.key, r.value) for r in received if r.partition == index]
        assert of_it == [(record.key, record.value) for record in sent[index::3]]


def test_equal_keys_share_a_partition(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 4)
    sent = [Sent(b"%d" % i, b"key %d" % (i % 20)) for i in range(200)]

    positions = client.produce(name, sent)

    partitions = {
        (record.key, position[0]) for record, position in zip(sent, positions, strict=True)
    }
    assert len(partitions) == 20
    assert len({index for _, index in partitions}) > 1


def test_a_topic_is_created_when_first_produced_to(client: Client, name: str) -> None:
    assert client.produce(name, [Sent(b"first")]) == [(0, 0)]
    assert [record.value for record in read(client, name, 1)] == [b"first"]


def test_null_and_empty_values_stay_distinct(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    # Two of the libraries refuse to send a record that has neither.
    pairs = [
        pair for pair in itertools.product((None, b"", b"x"), repeat=2) if pair != (None, None)
    ]
    sent = [Sent(value, key) for value, key in pairs]

    client.produce(name, sent)

    received = read(client, name, len(sent))
    assert [(r.value, r.key) for r in received] == [(s.value, s.key) for s in sent]


def test_headers(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    sent = [
        Sent(b"none"),
        Sent(b"one", headers=(("trace", b"\x00\xff"),)),
        Sent(b"repeated and empty", headers=(("a", b"1"), ("a", b""), ("ünï", b"2"))),
        Sent(b"many", headers=tuple((f"h{i}", b"v" * i) for i in range(50))),
    ]
    if client.sends_null_headers:
        sent.append(Sent(b"null", headers=(("a", None), ("b", b""))))

    client.produce(name, sent)

    assert [r.headers for r in read(client, name, len(sent))] == [s.headers for s in sent]


def test_a_timestamp_is_kept(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    sent = [Sent(b"%d" % i, timestamp_ms=START_MS + 7 * i) for i in range(5)]

    client.produce(name, sent)

    assert [r.timestamp_ms for r in read(client, name, 5)] == [s.timestamp_ms for s in sent]


def test_log_append_time(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)

    client.produce(name, [Sent(b"%d" % i, timestamp_ms=START_MS) for i in range(3)])

    for record in read(client, name, 3):
        assert before <= record.timestamp_ms <= time.time() * 1000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(
    client: Client, clients: list[Client], admin: Admin, name: str, codec: str, bootstrap: str
) -> None:
    admin.create_topic(name, 1)
    sent = [Sent(f"{i} and the same text again ".encode() * 20, b"key") for i in range(200)]

    client.produce(name, sent, compression=codec, linger_ms=50)

    headers = [header for header, _ in stored_batches(bootstrap, name)]
    assert {header.codec for header in headers} == {Codec[codec.upper()]}
    stored = sum(header.size for header in headers)
    assert stored < sum(len(record.value or b"") for record in sent) / 2
    for reader in clients:
        received = read(reader, name, len(sent))
        assert [r.value for r in received] == [s.value for s in sent], reader.name


def test_a_topic_may_insist_on_a_codec(
    client: Client, admin: Admin, name: str, bootstrap: str
) -> None:
    admin.create_topic(name, 1, {"compression.type": "zstd"})
    sent = [Sent(b"%d and the same text again" % i, headers=(("h", b"1"),)) for i in range(50)]

    assert client.produce(name, sent, idempotent=True) == [(0, i) for i in range(50)]

    assert {header.codec for header, _ in stored_batches(bootstrap, name)} == {Codec.ZSTD}
    received = read(client, name, 50)
    assert [(r.value, r.headers) for r in received] == [(s.value, s.headers) for s in sent]


def test_values_of_a_million_bytes(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1)
    content = random.Random(7)
    sent = [Sent(content.randbytes(1_000_000)) for _ in range(5)]

    client.produce(name, sent)

    received = read(client, name, len(sent))
    assert [r.value == s.value for r, s in zip(received, sent, strict=True)] == [True] * 5


def test_a_record_beyond_the_limit_is_refused(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 1, {"max.message.bytes": "10000"})

    with pytest.raises(Exception, match=r"(?i)msg_?size|message_?size|too_?large"):
        client.produce(name, [Sent(b"x" * 20_000)])

    assert client.produce(name, [Sent(b"small")]) == [(0, 0)]


@pytest.mark.moving
def test_seek_by_time(client: Client, admin: Admin, name: str) -> None:
    admin.create_topic(name, 2)
    sent = [Sent(b"%d" % i, partition=0, timestamp_ms=START_MS + 1000 * i) for i in range(10)]
    client.produce(name, sent)

    with closing(client.consumer()) as consumer:
        consumer.assign(name, (0, 1))
        poll_count(consumer, 10)
        assert consumer.offsets_for_time(name, (0, 1), START_MS + 4500) == {0: 5}
        assert consumer.offsets_for_time(name, (0,), START_MS + 5000) == {0: 5}
        assert consumer.offsets_for_time(name, (0,), START_MS + 9001) == {}
        consumer.seek(name, 0, 5)
        assert [record.offset for record in poll_count(consumer, 5)] == [5, 6, 7, 8, 9]


@pytest.mark.moving
def test_an_idempotent_producer(client: Client, admin: Admin, name: str, bootstrap: str) -> None:
    admin.create_topic(name, 1)
    sent = [Sent(b"%d" % i) for i in range(500)]

    positions = client.produce(name, sent, idempotent=True, linger_ms=0)

    assert positions == [(0, i) for i in range(500)]
    headers = [header for header, _ in stored_batches(bootstrap, name)]
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id >= 0
    assert [header.base_sequence for header in headers] == [h.base_offset for h in headers]
    assert [r.value for r in read(client, name, 500)] == [s.value for s in sent]
