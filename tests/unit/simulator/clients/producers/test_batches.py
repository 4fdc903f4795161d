"""Batches of simulated producers, as a consumer decodes them."""

from __future__ import annotations

import pytest

from lakelog.records.batch import check_crc, iter_batches
from lakelog.records.record import Record, decode_records
from scripted_clients import produced, scripted_world
from simulator.clients.client import Client
from simulator.clients.producers.batches import answer_of, batch_of, produce_request


def records_of(batch: bytes) -> list[Record]:
    ((header, body),) = iter_batches(batch)
    assert check_crc(body, 0, header)
    return list(decode_records(body, header, 1 << 20))


def test_keys_and_tombstones_of_a_compacted_topic() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        live, deleted = records_of(batch_of(client, [b"k1/a", b"k2/-b"], keyed=True))
    assert (bytes(live.key or b""), bytes(live.value or b"")) == (b"k1", b"k1/a")
    assert bytes(deleted.key or b"") == b"k2"
    assert deleted.value is None
    ((_, name),) = deleted.headers
    assert bytes(name or b"") == b"k2/-b"


def test_values_without_keys_are_no_tombstones() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        (record,) = records_of(batch_of(client, [b"k2/-b"]))
        assert record.key is None
        assert bytes(record.value or b"") == b"k2/-b"


@pytest.mark.parametrize("transactional", [False, True])
def test_the_producer_and_its_transaction_are_in_the_header(transactional: bool) -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        batch = batch_of(client, [b"a", b"b"], (7, 3, 40), transactional=transactional)
        wall_ms = world.simulator.wall_ms()
    ((header, _),) = iter_batches(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert header.is_transactional is transactional
    assert header.last_offset == 1
    assert header.max_timestamp == wall_ms


def test_some_batches_are_compressed() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        batches = [batch_of(client, [b"." * 300]) for _ in range(40)]
    sizes = {len(batch) for batch in batches}
    assert min(sizes) < 200
    assert max(sizes) > 300


def test_a_request_is_for_one_partition() -> None:
    request = produce_request(("topic", 2), b"batch", acks=1, transaction="t")
    assert (request.acks, request.transactional_id) == (1, "t")
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    assert (topic.name, data.index, data.records) == ("topic", 2, b"batch")
    assert answer_of(produced(offset=9)(request)).base_offset == 9
