"""Space that is kept back for a start on a full disk."""

from __future__ import annotations

import errno

import pytest

from lakelog.storage.reserve import RESERVE, SpaceReserve
from lakelog.testing.disk import MemoryDisk
from storage_kit import DATA, ManualClock

SIZE = 1000


def make_disk(capacity: int) -> MemoryDisk:
    disk = MemoryDisk(ManualClock(), capacity=capacity)
    disk.make_dirs(DATA)
    return disk


def opened(disk: MemoryDisk, size: int = SIZE) -> SpaceReserve:
    reserve = SpaceReserve(disk, DATA, size)
    reserve.open()
    return reserve


def test_it_is_allocated_when_there_is_plenty() -> None:
    disk = make_disk(4 * SIZE)
    reserve = opened(disk)
    assert not reserve.is_held
    reserve.renew()
    assert reserve.is_held
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
    disk.capacity = 4 * SIZE
    reserve.renew()
    assert (reserve.is_spent, reserve.is_held) == (False, True)


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
