"""States of a partition, and the errors that clients get for failures of its log."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError
from lakelog.replica.availability import Availability
from lakelog.storage.errors import CorruptLog
from storage_kit import memory_store


class Bench:
    """The availability of one log, and its calls to its owner."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.log = memory_store().create()
        self.availability = Availability(
            self.log,
            lambda: self.calls.append("offline"),
            lambda error: self.calls.append(f"shortage {error.errno}"),
            lambda: self.calls.append("failed"),
        )

    def rejects_with(self) -> ErrorCode:
        with pytest.raises(KafkaError) as error:
            self.availability.check()
        return error.value.code


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_shortage_is_retriable_and_leaves_the_partition_online(number: int) -> None:
    bench = Bench()
    error = bench.availability.storage_error(OSError(number, "none left"))
    assert isinstance(error, OutOfCapacityError)
    assert bench.calls == [f"shortage {number}"]
    bench.availability.check()


def test_a_failed_device_takes_the_partition_offline_with_a_reason() -> None:
    bench = Bench()
    error = bench.availability.storage_error(OSError(errno.EIO, "device failed"))
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.calls == ["offline", "failed"]
    assert "device failed" in (bench.availability.offline_reason or "")
    assert bench.rejects_with() is ErrorCode.KAFKA_STORAGE_ERROR
    assert not bench.availability.is_online


def test_failures_of_a_retired_partition_do_not_take_it_offline() -> None:
    bench = Bench()
    bench.availability.is_retired = True
    error = bench.availability.storage_error(OSError(errno.EIO, "its files are deleted"))
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (bench.calls, bench.availability.offline_reason) == ([], None)
    assert bench.rejects_with() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_damaged_records_are_logged_once_for_a_place_and_leave_the_partition_online(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    with caplog.at_level(logging.ERROR):
        for position in (10, 10, 20):
            damage = CorruptLog(Path("0.log"), position, "wrong CRC")
            error = bench.availability.reading_error(damage)
            assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert [record.getMessage() for record in caplog.records] == [
        "partition topic-0: 0.log is corrupt at byte 10: wrong CRC",
        "partition topic-0: 0.log is corrupt at byte 20: wrong CRC",
    ]
    assert bench.availability.is_online
    assert bench.calls == ["failed", "failed"]


def test_a_read_that_the_device_fails_takes_the_partition_offline() -> None:
    bench = Bench()
    error = bench.availability.reading_error(OSError(errno.EIO, "device failed"))
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert bench.calls == ["offline", "failed"]
