"""The consumer: its settings, positions, resets and commits."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.consumer.api import Consumer
from lakelog.client.consumer.fetcher import FetchLimits
from lakelog.client.errors import ClientError
from lakelog.client.offsets import EARLIEST, LATEST
from lakelog.columns.packages import MissingPackageError
from lakelog.protocol.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
)
from lakelog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from lakelog.records.builder import BatchBuilder
from lakelog.records.crc import crc32c
from scripted_broker import ScriptedBroker, records_of

KEY = ("orders", 0)
START, END = 3, 9


def log_of(request: FetchRequest) -> FetchResponse:
    """Return batches of three records from `START` to `END`; nothing before or after."""
    asked = request.topics[0].partitions[0].fetch_offset
    if not START <= asked <= END:
        return records_of(request, b"", END, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    builder = BatchBuilder()
    base = asked // 3 * 3
    for number in range(3):
        builder.append(number, None, b"%d" % (base + number))
    found = bytes(builder.build(base_offset=base)) if asked < END else b""
    return records_of(request, found, END)


def bounds_of(request: ListOffsetsRequest) -> ListOffsetsResponse:
    time = request.topics[0].partitions[0].timestamp
    offset = {EARLIEST: START, LATEST: END}.get(time, -1 if time > 100 else 5)
    row = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    topic = ListOffsetsTopicResponse(name="orders", partitions=[row])
    return ListOffsetsResponse(topics=[topic])


def committed(offset: int) -> OffsetFetchResponse:
    row = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset)
    topic = OffsetFetchResponseTopics(name="orders", partitions=[row])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


@pytest.fixture(autouse=True)
def log(broker: ScriptedBroker) -> Iterator[None]:
    broker.on(FetchRequest, log_of)
    broker.on(ListOffsetsRequest, bounds_of)
    row = OffsetCommitResponsePartition(partition_index=0)
    topic = OffsetCommitResponseTopic(name="orders", partitions=[row])
    broker.on(OffsetCommitRequest, OffsetCommitResponse(topics=[topic]))
    broker.on(OffsetFetchRequest, committed(-1))
    yield


def consumer_of(broker: ScriptedBroker, **settings: object) -> Consumer:
    limits = FetchLimits(max_wait_ms=1)
    consumer = Consumer(broker.address, timeout_s=10.0, limits=limits, **settings)  # type: ignore[arg-type]
    consumer.assign([KEY])
    return consumer


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"auto_offset_reset": "newest"}, "newest"),
        ({"isolation_level": "serializable"}, "serializable"),
        ({"auto_commit": True}, "requires a group"),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(
    broker: ScriptedBroker, settings: dict[str, object], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        consumer_of(broker, **settings)


@pytest.mark.parametrize(("reset", "first"), [("earliest", START), ("latest", END)])
def test_without_a_committed_offset_the_reset_decides(
    broker: ScriptedBroker, reset: str, first: int
) -> None:
    with consumer_of(broker, group="g", auto_offset_reset=reset) as consumer:
        assert consumer.position(KEY) == first


def test_reading_continues_at_the_committed_offset(broker: ScriptedBroker) -> None:
    broker.on(OffsetFetchRequest, committed(7))
    with consumer_of(broker, group="g") as consumer:
        records = consumer.poll(60.0)
        assert [record.offset for record in records] == [7, 8]
        assert consumer.position(KEY) == END


def test_an_offset_that_retention_deleted_is_reset_with_a_warning(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with consumer_of(broker, out_of_range_reset="earliest") as consumer:
        consumer.seek(KEY, 0)
        with caplog.at_level(logging.WARNING):
            assert consumer.poll(60.0)[0].offset == START
    assert "orders-0: offset 0 is not in the log" in caplog.text
    assert f"reading continues at {START}" in caplog.text


def test_without_a_reset_an_offset_outside_of_the_log_is_an_error(broker: ScriptedBroker) -> None:
    with consumer_of(broker, auto_offset_reset="none", out_of_range_reset="none") as consumer:
        with pytest.raises(ClientError) as error:
            consumer.poll(60.0)
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert "auto_offset_reset" in error.value.hint


def test_a_seek_to_a_time_after_all_records_is_one_to_the_end(broker: ScriptedBroker) -> None:
    with consumer_of(broker) as consumer:
        assert consumer.seek_to_time(KEY, 50) == 5
        assert consumer.seek_to_time(KEY, 1_000) == END


def test_returned_records_are_committed_and_others_are_not(broker: ScriptedBroker) -> None:
    with consumer_of(broker, group="g", auto_offset_reset="earliest") as consumer:
        assert len(consumer.poll(60.0, max_records=2)) == 2
        consumer.commit()
        consumer.commit()
    (request,) = broker.asked(OffsetCommitRequest)
    assert request.topics[0].partitions[0].committed_offset == START + 2


def test_records_of_a_block_that_raises_are_not_committed(broker: ScriptedBroker) -> None:
    """They were not processed; the next consumer reads them again."""
    settings = {"group": "g", "auto_commit": True, "auto_offset_reset": "earliest"}
    with pytest.raises(ZeroDivisionError), consumer_of(broker, **settings) as consumer:
        consumer.poll(60.0)
        raise ZeroDivisionError
    assert broker.asked(OffsetCommitRequest) == []


def test_a_partition_that_is_not_assigned_cannot_be_sought(broker: ScriptedBroker) -> None:
    with consumer_of(broker) as consumer:
        with pytest.raises(ValueError, match="orders-1 is not assigned"):
            consumer.seek(("orders", 1), 0)
        with pytest.raises(ValueError, match="requires a group"):
            consumer.commit()


def test_a_topic_in_place_of_a_partition_is_refused_with_an_example(broker: ScriptedBroker) -> None:
    topic: Any = "orders"
    with consumer_of(broker, group="g") as consumer:
        for call in (
            lambda: consumer.assign([topic]),
            lambda: consumer.seek(topic, 0),
            lambda: consumer.position(topic),
            lambda: consumer.committed([topic]),
            lambda: consumer.commit({topic: 5}),
        ):
            with pytest.raises(TypeError, match=r"such as \('orders', 0\), not 'orders'"):
                call()
    assert broker.asked(OffsetCommitRequest) == []


def damaged_second_partition(request: FetchRequest) -> FetchResponse:
    """Return a record for partition 0, and records that do not fit their batch for partition 1."""
    rows = []
    for asked in request.topics[0].partitions:
        builder = BatchBuilder()
        builder.append(0, None, b"v")
        data = builder.build(base_offset=3)
        if asked.partition == 1:
            data[61] ^= 2
            data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        end = START + 1
        records = bytes(data) if asked.fetch_offset == START else b""
        rows.append(
            PartitionData(
                partition_index=asked.partition,
                high_watermark=end,
                last_stable_offset=end,
                log_start_offset=0,
                aborted_transactions=None,
                records=records,
            )
        )
    topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=rows)
    return FetchResponse(responses=[topic])


@pytest.mark.parametrize("as_columns", [False, True])
def test_a_damaged_partition_loses_no_records_of_the_others(
    broker: ScriptedBroker, as_columns: bool
) -> None:
    broker.on(FetchRequest, damaged_second_partition)
    with consumer_of(broker) as consumer:
        keys = [("orders", 0), ("orders", 1)]
        consumer.assign(keys)
        for key in keys:
            consumer.seek(key, START)
        found = 0
        with pytest.raises(ClientError, match="orders-1, batch at offsets 3 to 3"):
            for _ in range(3):
                found += (
                    consumer.poll_arrow(60.0).num_rows if as_columns else len(consumer.poll(60.0))
                )
        assert found == 1
        assert [consumer.position(key) for key in keys] == [START + 1, START]


def test_columns_are_polled_committed_and_alternate_with_records(broker: ScriptedBroker) -> None:
    with consumer_of(broker, group="g", auto_offset_reset="earliest") as consumer:
        table = consumer.poll_arrow(60.0, columns=["offset", "value"], max_records=2)
        assert table.to_pydict() == {"offset": [3, 4], "value": [b"3", b"4"]}
        consumer.commit()
        assert [record.offset for record in consumer.poll(60.0, 1)] == [5]
        assert consumer.poll_arrow(60.0)["offset"].to_pylist() == [6, 7, 8]
        assert consumer.position(KEY) == END
        assert consumer.poll_arrow(0.0).num_rows == 0
    [commit] = broker.asked(OffsetCommitRequest)
    assert commit.topics[0].partitions[0].committed_offset == 5


def test_data_frames(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_of(broker, auto_offset_reset="earliest") as consumer:
        frame = consumer.poll_pandas(60.0, columns=["offset", "key", "value"])
        assert frame["offset"].to_list() == [3, 4, 5]
        assert frame["value"].to_list() == [b"3", b"4", b"5"]
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(MissingPackageError, match=r"pip install '\.\[pandas\]'"):
            consumer.poll_pandas()


def test_data_frames_of_polars(broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with consumer_of(broker, auto_offset_reset="earliest") as consumer:
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "polars", None)
            with pytest.raises(MissingPackageError, match=r"pip install '\.\[polars\]'"):
                consumer.poll_polars()
        pytest.importorskip("polars")
        frame = consumer.poll_polars(60.0, columns=["offset", "value"])
        assert frame.to_dict(as_series=False) == {"offset": [3, 4, 5], "value": [b"3", b"4", b"5"]}
