"""Types, partitions and rows of tables, before a producer buffers records."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import ClientError, NotWrittenError
from lakelog.client.producer import Producer, TransactionalProducer, WrittenRows
from lakelog.client.producer.records import Sticky, by_key, check_types
from lakelog.columns.encoding.columns import ColumnError
from lakelog.columns.packages import MissingPackageError
from lakelog.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from lakelog.records.batch import read_header
from lakelog.records.record import decode_records
from scripted_broker import ScriptedBroker


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"value": "text"}, r"^value must be bytes or None, not str: use 'text'\.encode\(\)$"),
        ({"value": "x" * 99}, r"use 'x{20}\.\.\.'\.encode"),
        ({"value": 5}, "^value must be bytes or None, not int$"),
        ({"value": b"", "key": "k"}, r"^key must be bytes or None, not str: use 'k'\.encode"),
        ({"value": b"", "headers": {"a": b"b"}}, r"such as \[\('name', b'value'\)\], not 'a'$"),
        ({"value": b"", "headers": ["ab"]}, "^headers must be pairs"),
        ({"value": b"", "headers": 5}, "^headers must be pairs"),
        ({"value": b"", "headers": [("a", "b")]}, r"^header 'a' must be bytes .* use 'b'\.encode"),
        ({"value": b"", "headers": [(b"a", b"b")]}, "name of a header must be str, not bytes"),
        ({"value": b"", "topic": b"orders"}, "^topic must be str, such as 'orders', not bytes$"),
        ({"value": b"", "partition": "0"}, "^partition must be int or None, not str$"),
        ({"value": b"", "timestamp_ms": 1.5}, "^timestamp_ms must be int or None, not float$"),
    ],
)
def test_a_wrong_type_is_named_with_the_wanted_one(record: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        check_types(**{"topic": "orders", **record})


@pytest.mark.parametrize("value", [None, b"v", bytearray(b"v"), memoryview(b"v")])
def test_bytes_of_any_kind_are_values(value: object) -> None:
    check_types("orders", value, value, [("name", value)], 0, 5)


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"", 275646681),
    ],
)
@pytest.mark.parametrize("count", [1, 7, 100])
def test_a_key_has_the_same_partition_as_in_java(key: bytes, java_hash: int, count: int) -> None:
    """The hashes are from `UtilsTest.testMurmur2` of Apache Kafka."""
    assert by_key("t", key, count) == (java_hash & 0x7FFFFFFF) % count


def test_records_without_a_key_fill_one_partition_after_the_other() -> None:
    """KIP-480."""
    sticky = Sticky(8)
    assert [sticky.current(3), sticky.current(3)] == [2, 2]
    sticky.move_on(2, 3)
    assert sticky.current(3) == 0


def test_a_full_batch_of_another_partition_changes_nothing() -> None:
    """Records with a key or a chosen partition fill it."""
    sticky = Sticky(8)
    sticky.move_on(1, 3)
    assert sticky.current(3) == 2


def test_a_topic_that_grows_keeps_the_choice_valid() -> None:
    sticky = Sticky(8)
    sticky.move_on(2, 3)
    assert 0 <= sticky.current(5) < 5


def answer(request: ProduceRequest, code: int = 0) -> ProduceResponse:
    topics = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=row.index, error_code=code, base_offset=70)
                for row in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return ProduceResponse(responses=topics)


def producer_of(broker: ScriptedBroker, **settings: object) -> Producer:
    broker.on(ProduceRequest, answer)
    return Producer(broker.address, **{"acks": 1, "linger_ms": 60_000, **settings})  # type: ignore[arg-type]


def written(broker: ScriptedBroker) -> list[tuple[int, list[bytes | None]]]:
    """Return partition and values of each batch that has arrived."""
    return [
        (
            row.index,
            [each.value for each in decode_records(row.records, read_header(row.records), 1 << 20)],
        )
        for request in broker.asked(ProduceRequest)
        for row in request.topic_data[0].partition_data
    ]


def test_rows_are_sent_in_order_without_a_flush(broker: ScriptedBroker) -> None:
    rows = {"value": ["a", "b", "c", "d"], "partition": [1, 0, 1, 1], "topic": ["orders"] * 4}
    with producer_of(broker, batch_bytes=140) as producer:
        delivery = producer.send_table(pa.table(rows))
        written_parts = delivery.result(60)
    assert (delivery.count, delivery.done) == (4, True)
    assert sorted(written_parts) == [
        WrittenRows("orders", 0, 70, 1),
        WrittenRows("orders", 1, 70, 3),
    ]
    assert sorted(written(broker)) == [(0, [b"b"]), (1, [b"a", b"c", b"d"])]


def test_rows_follow_records_that_were_sent_before(broker: ScriptedBroker) -> None:
    with producer_of(broker, max_in_flight=1) as producer:
        producer.send("orders", b"0", partition=1)
        producer.send_table(pa.table({"value": [b"1"], "partition": [1]}), "orders")
        producer.send("orders", b"2", partition=1)
        producer.flush(60)
    assert [value for _, values in written(broker) for value in values] == [b"0", b"1", b"2"]


def test_rows_without_a_key_continue_where_records_are(broker: ScriptedBroker) -> None:
    with producer_of(broker) as producer:
        first = producer.send_table(pa.table({"value": [b"1"]}), "orders").result(60)[0].partition
        second = producer.send("orders", b"2")
        producer.flush(60)
        assert second.result().partition == 1 - first


def test_the_partitioner_of_the_producer_decides(broker: ScriptedBroker) -> None:
    with producer_of(broker, partitioner=lambda topic, key, count: len(key) % count) as producer:
        table = pa.table({"value": [b"1", b"2"], "key": [b"a", b"bb"]})
        producer.send_table(table, "orders").result(60)
    assert sorted(written(broker)) == [(0, [b"2"]), (1, [b"1"])]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_batches_have_the_producers_codec_and_sequences(broker: ScriptedBroker, codec: str) -> None:
    broker.on(InitProducerIdRequest, InitProducerIdResponse(producer_id=9, producer_epoch=4))
    with producer_of(
        broker, acks=-1, idempotent=True, compression=codec, batch_bytes=200, max_in_flight=1
    ) as producer:
        table = pa.table({"value": [b"x" * 50] * 4, "partition": [0] * 4})
        producer.send_table(table, "orders").result(60)
    heads = [
        read_header(row.records)
        for request in broker.asked(ProduceRequest)
        for row in request.topic_data[0].partition_data
    ]
    assert [(head.base_sequence, head.records_count) for head in heads] == [(0, 2), (2, 2)]
    assert {head.codec for head in heads} == {0 if codec == "none" else 4}


@pytest.mark.parametrize(
    ("column", "values", "code"),
    [
        ("partition", [0, 9], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("key", [b"", b"x" * 2000], ErrorCode.MESSAGE_TOO_LARGE),
        ("timestamp", [0, -7], ErrorCode.INVALID_TIMESTAMP),
        ("topic", ["orders", None], ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_sent(
    broker: ScriptedBroker, column: str, values: list[object], code: ErrorCode
) -> None:
    table = pa.table({"value": [b"1", b"2"], "topic": ["orders"] * 2})
    if column in table.schema.names:
        table = table.drop_columns(column)
    table = table.append_column(column, pa.array(values))
    with producer_of(broker, max_request_bytes=1000) as producer:
        with pytest.raises(NotWrittenError, match="row 1: ") as caught:
            producer.send_table(table)
        assert caught.value.code is code
        assert bool(caught.value.hint) is (code is ErrorCode.MESSAGE_TOO_LARGE)
    assert written(broker) == []


def test_tables_that_are_no_records(broker: ScriptedBroker) -> None:
    with producer_of(broker) as producer:
        with pytest.raises(ColumnError, match="unknown column 'offset'"):
            producer.send_table(pa.table({"value": [b""], "offset": [1]}), "orders")
        with pytest.raises(TypeError, match="dict is no table"):
            producer.send_table({"value": [b""]}, "orders")
        assert (
            producer.send_table(pa.table({"value": pa.array([], pa.binary())}), "orders").result()
            == []
        )


def test_without_pyarrow_the_error_names_the_extra(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"value": [b""]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    missing = pytest.raises(MissingPackageError, match=r"pip install '\.\[arrow\]'")
    with producer_of(broker) as producer, missing:
        producer.send_table(table, "orders")


def test_a_failure_is_raised_once(broker: ScriptedBroker) -> None:
    with producer_of(broker) as producer:
        broker.on(ProduceRequest, lambda request: answer(request, ErrorCode.INVALID_RECORD))
        delivery = producer.send_table(
            pa.table({"value": [b"", b""], "partition": [0, 1]}), "orders"
        )
        with pytest.raises(NotWrittenError, match="INVALID_RECORD"):
            delivery.result(60)
        producer.flush(60)
        with pytest.raises(NotWrittenError, match="INVALID_RECORD"):
            delivery.result(60)


def test_a_full_buffer_holds_the_table_back(broker: ScriptedBroker) -> None:
    broker.on(ProduceRequest, lambda _: None)
    table = pa.table({"value": [b"x" * 100] * 10, "partition": [0] * 10})
    producer = Producer(
        broker.address,
        acks=1,
        delivery_timeout_ms=5000,
        batch_bytes=200,
        buffer_bytes=400,
        max_block_ms=500,
    )
    with pytest.raises(NotWrittenError, match="the buffer stayed full"):
        producer.send_table(table, "orders")
    with pytest.raises(ClientError):
        producer.close(60)


def test_rows_need_a_transaction_that_has_begun(broker: ScriptedBroker) -> None:
    not_begun = pytest.raises(ClientError, match="INVALID_TXN_STATE")
    with TransactionalProducer(broker.address, "t") as producer, not_begun:
        producer.send_table(pa.table({"value": [b""]}), "orders")
