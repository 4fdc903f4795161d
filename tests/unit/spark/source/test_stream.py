"""Offsets of a streaming query's micro-batches, as Spark asks for them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from lakelog.client.offsets import EpochEnd, OffsetAt
from lakelog.spark.source import stream
from lakelog.spark.source.options import Identity
from lakelog.spark.source.readers import schema_of, stream_reader
from lakelog.spark.source.stream import StreamReader
from lakelog.tables.topic.errors import DataLossError, OptionError, TopicMissingError
from lakelog.tables.topic.offsets import StreamOffset, TopicPartition
from unit.spark.source.source_log import Log

OPTIONS = {
    "kafka.bootstrap.servers": "h:9092",
    "subscribe": "t",
    "startingOffsets": "earliest",
}
NO_LIMIT = ReadAllAvailable()
Open = Callable[..., StreamReader]


@pytest.fixture
def log() -> Log:
    return Log(t=[10, 2])


@pytest.fixture
def open_reader(log: Log, monkeypatch: pytest.MonkeyPatch) -> Open:
    monkeypatch.setattr(stream, "open_planner", lambda _: log)

    def opened(**given: str) -> StreamReader:
        values = {**OPTIONS, **given}
        return stream_reader(values, schema_of(values))

    return opened


def offsets(value: dict[str, dict[str, int]]) -> dict[str, dict[int, int]]:
    return StreamOffset.from_json(value).offsets


def test_batches_join_at_the_offsets_of_the_checkpoint(log: Log, open_reader: Open) -> None:
    reader = open_reader()
    start = reader.initialOffset()
    first = reader.latestOffset(start, NO_LIMIT)
    log.ends["t"] = [10, 6]
    second = open_reader().latestOffset(first, NO_LIMIT)

    assert offsets(start) == {"t": {0: 0, 1: 0}}
    assert offsets(first) == {"t": {0: 10, 1: 2}}
    (task,) = reader.partitions(first, second)
    assert str(task.value) == "t-1 [2, 6)"


def test_nothing_new_is_the_start_itself(open_reader: Open) -> None:
    """Spark plans a batch for any offset that differs."""
    reader = open_reader()
    end = reader.latestOffset(reader.initialOffset(), NO_LIMIT)
    assert reader.latestOffset(end, NO_LIMIT) == end


def test_a_limit_takes_a_share_of_each_partition(open_reader: Open) -> None:
    reader = open_reader(maxOffsetsPerTrigger="6")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(6)
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert offsets(end) == {"t": {0: 5, 1: 1}}
    assert offsets(reader.reportLatestOffset()) == {"t": {0: 10, 1: 2}}


def test_a_limit_in_bytes_is_a_share_of_each_partition(log: Log, open_reader: Open) -> None:
    """The stand-in has records of 100 bytes."""
    reader = open_reader(maxBytesPerTrigger="600")
    limit = reader.getDefaultReadLimit()
    assert not isinstance(limit, ReadAllAvailable)
    start = reader.initialOffset()
    assert offsets(reader.latestOffset(start, limit)) == {"t": {0: 5, 1: 1}}
    assert offsets(reader.latestOffset(start, NO_LIMIT)) == {"t": {0: 10, 1: 2}}

    smaller = open_reader(maxBytesPerTrigger="600", maxOffsetsPerTrigger="3")
    assert offsets(smaller.latestOffset(start, limit)) == {"t": {0: 3, 1: 1}}


def test_a_batch_waits_for_enough_offsets_at_most_for_the_delay(
    log: Log, open_reader: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: now))
    reader = open_reader(minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert offsets(first) == {"t": {0: 10, 1: 2}}, "the first batch is not delayed"

    log.ends["t"] = [12, 4]
    assert reader.latestOffset(first, limit) == first
    log.ends["t"] = [12, 5]
    second = reader.latestOffset(first, limit)
    assert offsets(second) == {"t": {0: 12, 1: 5}}

    log.ends["t"] = [13, 5]
    now = 109.9
    assert reader.latestOffset(second, limit) == second
    now = 110.0
    assert offsets(reader.latestOffset(second, limit)) == {"t": {0: 13, 1: 5}}


def test_available_now_is_never_delayed(log: Log, open_reader: Open) -> None:
    reader = open_reader(minOffsetsPerTrigger="1000")
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(reader.initialOffset(), limit)
    log.ends["t"] = [11, 2]
    reader.prepareForTriggerAvailableNow()
    assert offsets(reader.latestOffset(first, limit)) == {"t": {0: 11, 1: 2}}


def test_a_report_names_the_brokers_and_the_group(open_reader: Open) -> None:
    """Also before the first question for an offset: a restart may repeat a planned batch."""
    reader = open_reader(groupIdPrefix="team")
    assert Identity.of(json.dumps(reader.reportLatestOffset())) == Identity("h:9092", prefix="team")


def test_available_now_ends_where_the_log_ended_at_its_start(log: Log, open_reader: Open) -> None:
    reader = open_reader()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    log.ends["t"] = [20, 20]
    assert offsets(reader.latestOffset(start, NO_LIMIT)) == {"t": {0: 10, 1: 2}}


def test_a_query_starts_with_all_of_its_topics(open_reader: Open) -> None:
    with pytest.raises(TopicMissingError, match="topic 'misspelt' does not exist"):
        open_reader(subscribe="t,misspelt").initialOffset()


def test_a_topic_that_never_existed_fails_or_is_logged_once(
    log: Log, open_reader: Open, caplog: pytest.LogCaptureFixture
) -> None:
    start = open_reader().initialOffset()
    with pytest.raises(TopicMissingError, match="topic 'x' does not exist"):
        open_reader(subscribe="t,x").latestOffset(start, NO_LIMIT)

    reader = open_reader(subscribe="t,x", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "lakelog.spark"):
        for _ in range(2):
            assert offsets(reader.latestOffset(start, NO_LIMIT)) == {"t": {0: 10, 1: 2}}
    assert caplog.messages == ["topic 'x' does not exist; its records are not read"]


class _Counted(Log):
    """A log that counts the questions for the ends of leader epochs."""

    compared = 0

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        self.compared += 1
        return super().epoch_ends(epochs)


def test_each_batch_is_compared_with_the_log_once_and_idle_polls_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = _Counted(t=[10])
    monkeypatch.setattr(stream, "open_planner", lambda _: log)
    reader = stream_reader(OPTIONS, schema_of(OPTIONS))
    end = reader.latestOffset(reader.initialOffset(), NO_LIMIT)
    assert reader.partitions(reader.initialOffset(), end)
    first = reader.latestOffset(end, NO_LIMIT)
    log.compared = 0
    for _ in range(3):
        assert reader.latestOffset(first, NO_LIMIT) == first
    assert log.compared == 0, "nothing changed since the last poll"

    log.ends["t"] = [12]
    second = reader.latestOffset(first, NO_LIMIT)
    assert [str(task.value) for task in reader.partitions(first, second)] == ["t-0 [10, 12)"]
    assert log.compared == 1
    assert reader.partitions(first, second)
    assert log.compared == 2, "a repeated batch"
    restarted = stream_reader(OPTIONS, schema_of(OPTIONS))
    assert restarted.partitions(first, second)
    assert log.compared == 3, "the batch of a checkpoint"


class _Regrown(Log):
    """A log that may have been cut at an offset; from there on it has a later leader epoch."""

    cut = 0

    def places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        found = super().places(wanted)
        later = 1 if self.cut else 0
        return {k: replace(at, leader_epoch=at.leader_epoch + later) for k, at in found.items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        if not self.cut:
            return super().epoch_ends(epochs)
        return {key: EpochEnd(epoch, self.cut) for key, epoch in epochs.items()}


def test_an_idle_query_finds_a_log_that_was_cut_and_grew_again_to_the_same_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = _Regrown(t=[10])
    monkeypatch.setattr(stream, "open_planner", lambda _: log)
    reader = stream_reader(OPTIONS, schema_of(OPTIONS))
    end = reader.latestOffset(reader.initialOffset(), NO_LIMIT)
    assert reader.latestOffset(end, NO_LIMIT) == end
    log.cut = 7
    with pytest.raises(DataLossError, match="cut and grew again"):
        reader.latestOffset(end, NO_LIMIT)


class _DeletedMeanwhile(Log):
    """A log whose topic is missing in the next `failures` questions for its offsets."""

    failures = 0

    def places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        if self.failures:
            self.failures -= 1
            raise TopicMissingError("topic 't' does not exist")
        return super().places(wanted)


@pytest.mark.parametrize(
    ("failures", "accepts_losses", "fails"),
    [(2, True, False), (3, True, True), (1, False, True)],
)
def test_a_topic_deleted_meanwhile_is_asked_for_again_if_losses_are_accepted(
    monkeypatch: pytest.MonkeyPatch, failures: int, accepts_losses: bool, fails: bool
) -> None:
    log = _DeletedMeanwhile(t=[10])
    monkeypatch.setattr(stream, "open_planner", lambda _: log)
    values = {**OPTIONS, "failOnDataLoss": str(not accepts_losses)}
    reader = stream_reader(values, schema_of(values))
    start = reader.initialOffset()
    log.failures = failures
    if fails:
        with pytest.raises(OptionError, match="'t' does not exist"):
            reader.latestOffset(start, NO_LIMIT)
    else:
        assert offsets(reader.latestOffset(start, NO_LIMIT)) == {"t": {0: 10}}


def test_stop_closes_the_connections_that_were_opened(log: Log, open_reader: Open) -> None:
    reader = open_reader()
    reader.stop()
    assert not log.is_closed
    reader.initialOffset()
    reader.stop()
    assert log.is_closed
