"""The role of a broker in a partition, and the error that names the leader."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError
from lakelog.metadata.failover import PartitionImage
from lakelog.protocol.metadata import LeaderIdAndEpoch
from lakelog.replica.role import Availability, NotLeaderError, Role, current_leader
from lakelog.storage.errors import CorruptLog
from storage_kit import memory_store

IMAGE = PartitionImage(
    partition=0, replicas=(1, 2, 3), isr=(1, 3), leader=3, leader_epoch=7, partition_epoch=9
)


@pytest.mark.parametrize(("node_id", "leads"), [(1, False), (2, False), (3, True)])
def test_one_replica_leads(node_id: int, leads: bool) -> None:
    role = Role.in_image(IMAGE, node_id)
    assert role == Role(7, 3, leads, (1, 3), (1, 2) if leads else (), 1 if leads else -1)


def test_without_a_leader_no_replica_leads() -> None:
    """The leader id is -1 then, which is no broker's id."""
    role = Role.in_image(IMAGE._replace(leader=-1), 1)
    assert (role.is_leader, role.leader_id) == (False, -1)


def test_the_error_names_the_leader_for_clients_and_for_people() -> None:
    error = NotLeaderError(3, 7)
    assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert str(error) == "NOT_LEADER_OR_FOLLOWER: broker 3 leads the partition in leader epoch 7"
    assert "no broker leads" in str(NotLeaderError(-1, 7))
    assert current_leader(error) == LeaderIdAndEpoch(leader_id=3, leader_epoch=7)


def test_other_errors_name_no_leader() -> None:
    assert current_leader(KafkaError(ErrorCode.CORRUPT_MESSAGE)) == LeaderIdAndEpoch()


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
