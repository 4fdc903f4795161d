"""Ranges that retention shortens before or while a task reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakelog.spark.archive.files import _Reading
from lakelog.spark.broker import Broker, TopicMeta
from lakelog.spark.errors import DataLossError, LogReplacedError, TopicGoneError
from lakelog.spark.offsets import TopicPartition
from lakelog.spark.planning import OffsetRange

WANTED = OffsetRange("t", 0, 10, 40, topic_id="id", leader_epoch=4)
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
        self._end_after = end_after
        self._error = error
        self._fails_at = fails_at
        self._start_after = start_after
        self.topic_id = "id"

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        return {name: TopicMeta(name, self.topic_id, (0,)) for name in names}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._end_after)

    def batches(self, wanted: OffsetRange) -> Iterator[tuple[Any, bytes]]:
        for at in range(wanted.start, wanted.end, 10):
            if at == self._fails_at and self._error is not None:
                error, self._error = self._error, None
                self.start = max(self.start, self._start_after)
                raise error
            yield SimpleNamespace(base_offset=at, last_offset=at + 9), b""


def read(log: Log, *, skip_lost: bool) -> list[int]:
    """The base offsets of what was read."""
    reading = _Reading(cast("Broker", log), WANTED, skip_lost=skip_lost)
    found: list[int] = []
    while reading.find_remaining():
        found.extend(header.base_offset for header, _ in reading.batches())
    return found


def test_a_range_that_is_there_is_read_once() -> None:
    assert read(Log(0), skip_lost=False) == [10, 20, 30]


def test_what_is_gone_before_the_read_is_a_loss_or_skipped() -> None:
    with pytest.raises(DataLossError, match=r"t-0 \[10, 20\): retention or.*--skip-lost"):
        read(Log(20), skip_lost=False)
    assert read(Log(20), skip_lost=True) == [20, 30]
    assert read(Log(90), skip_lost=True) == []


def test_what_goes_during_the_read_is_a_loss_or_skipped() -> None:
    with pytest.raises(DataLossError, match=r"t-0 \[20, 30\): retention or.*--skip-lost"):
        read(Log(0, OUT_OF_RANGE, 20, 30), skip_lost=False)
    assert read(Log(0, OUT_OF_RANGE, 20, 30), skip_lost=True) == [10, 30]
    assert read(Log(0, OUT_OF_RANGE, 20, 90), skip_lost=True) == [10]


def test_a_loss_that_the_log_does_not_show_is_raised_again() -> None:
    """Or a task would read for ever."""
    with pytest.raises(DataLossError, match="t-0 has offsets"):
        read(Log(0, OUT_OF_RANGE, 20, 0), skip_lost=True)


@pytest.mark.parametrize("skip_lost", [False, True])
def test_a_log_that_ends_before_the_range_is_another_one(skip_lost: bool) -> None:
    """What it lost is not archived: the job plans the range again, and loses nothing by that."""
    with pytest.raises(LogReplacedError, match=r"t-0 \[20, 40\): the log was cut and ends at 20"):
        read(Log(0, OUT_OF_RANGE, 20, end_after=20), skip_lost=skip_lost)


@pytest.mark.parametrize("error", [TopicGoneError("gone"), LogReplacedError("cut")])
def test_another_topic_and_another_log_are_never_skipped(error: DataLossError) -> None:
    with pytest.raises(type(error)):
        read(Log(0, error, 20, 30), skip_lost=True)
    recreated = Log(0)
    recreated.topic_id = "another"
    with pytest.raises(TopicGoneError, match="created again"):
        read(recreated, skip_lost=True)
