"""Space that is kept back for a start on a full disk, and deleted directories."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from doubles.disk import MemoryDisk
from lakelog.storage.folder.space import (
    HEADROOM_BYTES,
    RESERVE,
    Deletions,
    DiskSpaceGuard,
    SpaceReserve,
)
from storage_kit import DATA, ManualClock


def test_a_directory_is_due_once() -> None:
    deletions = Deletions(MemoryDisk(ManualClock()))
    deletions.add(Path("/data/a"), 5)
    deletions.add(Path("/data/b"))
    assert deletions.due(4) == [Path("/data/b")]
    assert deletions.due(4) == []
    assert deletions.due(5) == [Path("/data/a")]


def test_a_purge_removes_due_directories() -> None:
    disk = MemoryDisk(ManualClock())
    for name in ("a", "b"):
        disk.make_dirs(Path("/data") / name)
    deletions = Deletions(disk)
    deletions.add(Path("/data/a"), 1)
    deletions.add(Path("/data/b"), 2)
    assert deletions.purge(1) == 1
    assert disk.list(Path("/data")) == ["b"]


SIZE = 1000


def make_disk(capacity: int) -> MemoryDisk:
    disk = MemoryDisk(ManualClock(), capacity=capacity)
    disk.make_dirs(DATA)
    disk.sync_dir(DATA.parent)
    return disk


def opened(disk: MemoryDisk, size: int = SIZE) -> SpaceReserve:
    reserve = SpaceReserve(disk, DATA, size, DiskSpaceGuard())
    reserve.open()
    return reserve


def test_it_is_allocated_when_there_is_plenty() -> None:
    disk = make_disk(4 * SIZE)
    reserve = opened(disk)
    assert not reserve.is_held
    reserve.renew()
    assert (reserve.is_held, reserve.is_spent) == (True, False)
    assert disk.used == disk.size(DATA / RESERVE) == SIZE
    assert opened(disk).is_held
    tight = make_disk(4 * SIZE - 1)
    other = opened(tight)
    other.renew()
    assert (other.is_held, other.is_spent, tight.used) == (False, False, 0)


def test_a_start_on_a_full_disk_frees_it_for_good() -> None:
    disk = make_disk(10 * SIZE)
    opened(disk).renew()
    disk.capacity = 2 * SIZE - 1
    reserve = opened(disk)
    assert (reserve.is_spent, reserve.is_held) == (True, False)
    disk.crash()
    assert disk.used == 0
    reserve.renew()
    assert reserve.is_spent, "there is not enough yet"
    disk.capacity = SIZE + HEADROOM_BYTES
    reserve.renew()
    assert (reserve.is_spent, reserve.is_held) == (False, True)


def spent(disk: MemoryDisk) -> SpaceReserve:
    disk.capacity = 10 * SIZE
    reserve = opened(disk)
    reserve.renew()
    disk.capacity = SIZE
    assert reserve.free()
    return reserve


def test_it_is_freed_once_and_the_guard_rejects_writes_until_it_is_there_again() -> None:
    disk = make_disk(10 * SIZE)
    reserve = spent(disk)
    assert disk.used == 0
    assert not reserve.free()
    with pytest.raises(OSError, match="No space left"):
        reserve.space_guard.check()
    disk.capacity = SIZE + HEADROOM_BYTES - 1
    reserve.renew()
    assert reserve.space_guard.rejects_writes
    disk.capacity += 1
    reserve.renew()
    reserve.space_guard.check()
    assert disk.size(DATA / RESERVE) == SIZE


@pytest.mark.parametrize("power", [False, True])
def test_the_next_process_knows_that_it_is_spent(power: bool) -> None:
    disk = make_disk(10 * SIZE)
    spent(disk)
    if power:
        disk.crash()
    found = opened(disk)
    assert (found.is_spent, found.is_held) == (True, False)
    disk.capacity = SIZE + HEADROOM_BYTES
    found = opened(disk)
    assert (found.is_spent, found.is_held) == (False, True)


def test_what_cannot_be_freed_is_held() -> None:
    disk = make_disk(10 * SIZE)
    reserve = opened(disk)
    reserve.renew()
    disk.fail("truncate", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reserve.free()
    assert (reserve.is_spent, reserve.is_held) == (False, True)
    assert reserve.free()


def test_a_renewal_that_fails_leaves_it_spent() -> None:
    disk = make_disk(10 * SIZE)
    reserve = spent(disk)
    disk.capacity = 2 * HEADROOM_BYTES
    disk.fail("write", errno.EDQUOT, partial=SIZE // 2)
    with pytest.raises(OSError, match="quota"):
        reserve.renew()
    assert (reserve.is_spent, disk.size(DATA / RESERVE)) == (True, 0)
    assert opened(disk).is_held


def test_none_is_kept_if_none_is_wanted() -> None:
    disk = make_disk(10 * SIZE)
    opened(disk).renew()
    reserve = opened(disk, 0)
    assert (reserve.is_held, reserve.is_spent, disk.used) == (True, False, 0)
    reserve.renew()
    assert disk.used == 0


def test_half_a_reserve_does_not_stay() -> None:
    disk = make_disk(10 * SIZE)
    reserve = opened(disk)
    disk.fail("write", errno.ENOSPC, partial=SIZE // 2)
    with pytest.raises(OSError, match="space"):
        reserve.renew()
    assert (disk.used, reserve.is_held) == (0, False)
    reserve.renew()
    assert reserve.is_held
