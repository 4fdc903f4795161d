"""Logs observed inside a broker: offsets that decrease, and bytes that change."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.replica.partition import Partition
from lakelog.storage.folder.directory import LogDirectory
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.checkers.partition_watcher import Cut, PartitionWatcher
from simulator.checkers.record_history import RecordHistory
from storage_kit import DATA, NOW, TOPIC_ID, ManualClock, create_log, make_batch, sole_leader

PLACE = ("t", 0)


class NoDamage:
    """Files without flipped bits; `cut` is where recovery has to truncate the log."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.cut: int | None = None

    def cut_of(self, partition: Place) -> int | None:
        return self.cut

    def undamaged(self, path: Path) -> bytes:
        return self._disk.read(path)


class Restarts:
    """A partition with three batches, and the log that a start after a crash finds in its place."""

    def __init__(self) -> None:
        self.disk = MemoryDisk(ManualClock())
        self.damage = NoDamage(self.disk)
        self.history = RecordHistory(Findings())
        self.watcher = PartitionWatcher(self.history, self.damage)
        self.partition = self._partition(5, 3)

    def _partition(self, epoch: int, batches: int, size: int = 20) -> Partition:
        self.disk.make_dirs(DATA.parent)
        directory = LogDirectory(DATA, self.disk, ManualClock(), SeededRandom(1))
        directory.open(None, 1)
        log = create_log(directory, "t", 0, TOPIC_ID, LogConfig())
        partition = Partition(log, sole_leader(5), lambda _: None)
        for _ in range(batches):
            partition.append(make_batch(size=size), NOW)
        partition.assume(sole_leader(epoch), 0)
        return partition

    def crash(self) -> None:
        self.watcher.check([self.partition])
        self.watcher.remember([self.partition])
        self.disk.kill()

    def start(
        self, *, epoch: int = 6, batches: int = 3, size: int = 20, power: bool = False
    ) -> dict[Place, Cut]:
        """As another process: a log with so many batches is found."""
        self.disk.remove_tree(DATA)
        self.partition = self._partition(epoch, batches, size)
        return self.watcher.compare([self.partition], power=power)

    @property
    def broken(self) -> set[Law]:
        return self.history.findings.broken


@pytest.fixture
def restarts() -> Restarts:
    return Restarts()


def test_a_restart_that_changes_nothing(restarts: Restarts) -> None:
    restarts.crash()
    assert restarts.start() == {}
    assert restarts.broken == set()


def test_a_high_watermark_goes_back(restarts: Restarts) -> None:
    restarts.watcher.check([restarts.partition])
    restarts.partition.watermark.offset -= 1
    restarts.watcher.check([restarts.partition])
    assert Law.FORWARD in restarts.broken


def test_a_high_watermark_beyond_the_end(restarts: Restarts) -> None:
    restarts.partition.watermark.offset = 4
    restarts.watcher.check([restarts.partition])
    assert restarts.broken == {Law.ORDER}


def test_a_kill_loses_records(restarts: Restarts) -> None:
    restarts.crash()
    assert restarts.start(batches=2) == {PLACE: Cut(2, None, allowed=False)}
    assert restarts.broken == {Law.PROMISED_END}


def test_a_power_failure_may_lose_records_above_the_recovery_point(restarts: Restarts) -> None:
    restarts.crash()
    assert restarts.start(batches=2, power=True) == {PLACE: Cut(2, None, allowed=True)}
    assert restarts.broken == set()


def test_damage_above_the_recovery_point_has_to_end_the_log(restarts: Restarts) -> None:
    restarts.crash()
    restarts.damage.cut = 1
    assert restarts.start(batches=1) == {PLACE: Cut(1, 1, allowed=True)}
    assert restarts.broken == set()
    restarts.crash()
    restarts.damage.cut = 0
    restarts.start(epoch=7, batches=1)
    assert restarts.broken == {Law.DAMAGE_ENDS}


def test_the_leader_epoch_does_not_rise(restarts: Restarts) -> None:
    restarts.crash()
    restarts.start(epoch=5)
    assert Law.EPOCH_RISES in restarts.broken


def test_a_batch_has_other_bytes(restarts: Restarts) -> None:
    restarts.crash()
    restarts.start(size=30)
    assert restarts.broken == {Law.SAME_BYTES}


def test_a_start_brings_deleted_records_back(restarts: Restarts) -> None:
    restarts.history.trimmed(PLACE, 2)
    restarts.crash()
    restarts.start()
    assert restarts.broken == {Law.STAYS_TRIMMED}
