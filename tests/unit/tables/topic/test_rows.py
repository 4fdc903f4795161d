from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import cast

import pyarrow as pa
import pytest

from lakelog.client.consumer.fetch import Batch
from lakelog.columns.decoding.groups import column_types
from lakelog.records.batch import BatchHeader, patch_offset_and_epoch, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.archive.files import policy
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import (
    BadRecordError,
    DataLossError,
    LogReplacedError,
    OptionError,
    RecordsRemovedError,
    TopicGoneError,
    TopicMissingError,
)
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition
from lakelog.tables.topic.rows import ArrowRows, OnLoss, Reading
from storage_kit import make_batch

TYPES = {**column_types(), "topic": pa.string(), "partition": pa.int32()}
WANTED = OffsetRange("t", 3, 0, 10**6)


def batch(base: int, count: int = 1, time: int = 1500) -> Batch:
    """Return records at `time` plus their offset; every second one has no key and no value."""
    builder = BatchBuilder()
    for offset in range(base, base + count):
        key, value = (None, None) if offset % 2 else (b"k", b"v")
        builder.append(time + offset, key, value, [("h", None)])
    data = builder.build(base_offset=base)
    return read_header(data), memoryview(data)


def schema(*names: str) -> pa.Schema:
    """The schema with these columns, by default all of them."""
    return pa.schema([(name, TYPES[name]) for name in names or TYPES])


def rows(*names: str, null_timestamps: bool = False) -> ArrowRows:
    return ArrowRows(schema(*names), null_timestamps=null_timestamps, hint="Do this")


def test_every_column_in_the_types_of_the_schema() -> None:
    [found] = rows().convert(WANTED, [batch(0), batch(1)])

    assert found.schema == schema()
    assert found.to_pylist()[1] == {
        "key": None,
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp": datetime.fromtimestamp(1.501, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": None}],
        "rawTimestamp": None,
    }


def test_columns_that_are_the_same_for_all_records_need_no_others() -> None:
    [found] = rows("topic", "partition").convert(WANTED, [batch(0, 5)])

    assert found.to_pylist() == [{"topic": "t", "partition": 3}] * 5
    [other] = rows("topic", "partition").convert(OffsetRange("uß", 7, 0, 9), [batch(0, 3)])
    assert other.to_pylist() == [{"topic": "uß", "partition": 7}] * 3


def test_small_batches_are_put_together_and_large_ones_are_not() -> None:
    offsets = rows("offset")

    assert [b.num_rows for b in offsets.convert(WANTED, [batch(i) for i in range(5)])] == [5]
    large = [batch(0, 40_000), batch(40_000, 40_000)]
    assert [b.num_rows for b in offsets.convert(WANTED, large)] == [40_000] * 2


def test_an_impossible_timestamp_is_an_error_that_names_its_place() -> None:
    bad = batch(7, time=2**62)

    with pytest.raises(BadRecordError, match=rf"^t-3@7: the timestamp {2**62 + 7} .* Do this$"):
        list(rows("offset", "timestamp").convert(WANTED, [batch(0), bad]))

    [found] = rows(null_timestamps=True).convert(WANTED, [batch(0), bad])
    assert found["timestamp"][1].as_py() is None
    assert found["rawTimestamp"].to_pylist() == [None, 2**62 + 7]


def test_a_damaged_batch_is_an_error_that_names_its_place() -> None:
    header, data = batch(7, 3)
    data[65] ^= 0xFF

    with pytest.raises(BadRecordError, match=r"^t-3: the batch at offset 7 is damaged"):
        list(rows("offset", "timestamp").convert(WANTED, [batch(0), (header, data)]))


READ = OffsetRange("t", 0, 10, 40, topic_id="id", leader_epoch=4)
OUT_OF_RANGE = DataLossError("t-0 has offsets 30 to 40 (exclusive), not 20")


class Log:
    """Batches of ten offsets. At offset `fails_at` reading raises `error`, and then the log starts
    at `start_after` and ends at `end_after`."""

    def __init__(
        self,
        start: int,
        error: Exception | None = None,
        fails_at: int = -1,
        start_after: int = 0,
        end_after: int = 100,
    ) -> None:
        self.start = start
        self.end = self.stable_end = 100
        self._end_after = end_after
        self._error = error
        self._fails_at = fails_at
        self._start_after = start_after
        self.topic_id: str | None = "id"

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        if self.topic_id is None:
            raise TopicMissingError("topic 't' does not exist")
        return {name: TopicMeta(name, self.topic_id, (0,)) for name in names}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.stable_end)

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    def batches(self, wanted: OffsetRange) -> Iterator[tuple[BatchHeader, bytes]]:
        for at in range(wanted.start, wanted.end, 10):
            if at == self._fails_at and self._error is not None:
                error, self._error = self._error, None
                self.start = max(self.start, self._start_after)
                self.end = self.stable_end = self._end_after
                raise error
            batch = make_batch(10)
            patch_offset_and_epoch(batch, 0, at, 0)
            yield read_header(batch), b""


def read(log: Log, on_loss: OnLoss, wanted: OffsetRange = READ) -> list[int]:
    """Return the base offsets of the batches that were read."""
    reading = Reading(cast("TopicClient", log), wanted, on_loss)
    found: list[int] = []
    while reading.find_remaining():
        found.extend(header.base_offset for header, _ in reading.batches())
    return found


def read_rest(log: Log, wanted: OffsetRange = READ) -> tuple[list[int], list[str]]:
    """Return the batches that were read, and the losses, all of which are accepted."""
    losses: list[str] = []

    def on_loss(lost: OffsetRange, error: DataLossError) -> None:
        losses.append(f"{lost.start} to {lost.end}: {type(error).__name__}")

    return read(log, on_loss, wanted), losses


def refuse(lost: OffsetRange, error: DataLossError) -> None:
    raise error


def test_a_range_that_is_there_is_read_once() -> None:
    assert read(Log(0), refuse) == [10, 20, 30]


def test_records_removed_before_the_read_are_a_loss() -> None:
    with pytest.raises(RecordsRemovedError, match=r"t-0 \[10, 40\): the log holds only \[20, 100"):
        read(Log(20), refuse)
    assert read_rest(Log(20)) == ([20, 30], ["10 to 20: RecordsRemovedError"])
    assert read_rest(Log(90)) == ([], ["10 to 40: RecordsRemovedError"])


def test_records_removed_during_the_read_are_a_loss() -> None:
    with pytest.raises(RecordsRemovedError, match=r"t-0 \[20, 40\): the log holds only \[30, 100"):
        read(Log(0, OUT_OF_RANGE, 20, 30), refuse)
    assert read_rest(Log(0, OUT_OF_RANGE, 20, 30)) == ([10, 30], ["20 to 30: RecordsRemovedError"])
    assert read_rest(Log(0, OUT_OF_RANGE, 20, 90)) == ([10], ["20 to 40: RecordsRemovedError"])


def test_a_loss_that_the_log_does_not_show_is_raised_again() -> None:
    """Or a task would read for ever."""
    with pytest.raises(DataLossError, match="t-0 has offsets"):
        read_rest(Log(0, OUT_OF_RANGE, 20, 0))


def test_an_end_that_was_cut_off_is_a_loss() -> None:
    with pytest.raises(LogReplacedError, match=r"t-0 \[20, 40\): the log was cut and ends at 20"):
        read(Log(0, OUT_OF_RANGE, 20, end_after=20), refuse)
    lost = ["20 to 40: LogReplacedError"]
    assert read_rest(Log(0, OUT_OF_RANGE, 20, end_after=20)) == ([10], lost)
    lost = ["20 to 30: RecordsRemovedError", "30 to 40: LogReplacedError"]
    assert read_rest(Log(0, OUT_OF_RANGE, 20, 30, end_after=30)) == ([10], lost)


def test_an_end_that_the_log_never_reached_was_not_cut_off() -> None:
    given = OffsetRange("t", 0, 90, 120)
    with pytest.raises(LogReplacedError, match=r"t-0 \[90, 120\): the log ends at 100"):
        read(Log(0), refuse, given)
    assert read_rest(Log(0), given) == ([90], ["100 to 120: LogReplacedError"])


def test_an_open_transaction_is_no_loss() -> None:
    log = Log(0)
    log.stable_end = 20
    with pytest.raises(OptionError, match="the transaction at offset 20 is still open"):
        read_rest(log)


@pytest.mark.parametrize("error", [TopicGoneError("gone"), LogReplacedError("cut")])
def test_another_topic_and_another_log_end_the_reading(error: DataLossError) -> None:
    with pytest.raises(type(error)):
        read(Log(0, error, 20, 30), refuse)
    assert read_rest(Log(0, error, 20)) == ([10], [f"20 to 40: {type(error).__name__}"])


@pytest.mark.parametrize(("topic_id", "text"), [("other", "created again"), (None, "not exist")])
def test_a_topic_that_is_gone_ends_the_reading(topic_id: str | None, text: str) -> None:
    log = Log(0)
    log.topic_id = topic_id
    with pytest.raises(TopicGoneError, match=rf"t-0 \[10, 40\): .*{text}"):
        read(log, refuse)
    assert read_rest(log) == ([], ["10 to 40: TopicGoneError"])


def test_the_archive_skips_removed_records_alone() -> None:
    """Losses of a cut log are not skipped: the job plans the range again and loses nothing."""
    with pytest.raises(DataLossError, match=r"t-0 \[10, 20\): retention or.*--skip-lost"):
        read(Log(20), policy(None))
    skipped: list[OffsetRange] = []
    assert read(Log(20, OUT_OF_RANGE, 30, 90), policy(skipped)) == [20]
    assert [(lost.start, lost.end) for lost in skipped] == [(10, 20), (30, 40)]
    for error in (TopicGoneError("gone"), LogReplacedError("cut")):
        with pytest.raises(type(error)):
            read(Log(0, error, 20, 30), policy(skipped))
