"""Properties of the disk of a Linux host alone; `tests/contract` tests all disks alike."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.runtime import posix
from lakelog.runtime.posix import PosixDisk, PythonProcesses, process_usage, send_signal


def test_reading_ahead_returns_whether_the_device_was_read(device_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open(device_path / "file", create=True)
    file.write_at(0, bytes(1 << 20))
    file.sync()
    disk.drop_cached(file)
    has_device = os.major(device_path.stat().st_dev) != 0
    assert disk.read_ahead(file, 0, 1 << 20) is has_device
    assert disk.is_resident(file, 0, 1 << 20)
    assert not disk.read_ahead(file, 0, 1 << 20)
    file.close()


def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    disk, folder = PosixDisk(), tmp_path / "data"
    disk.make_dirs(folder)
    disk.open(folder / "opened", create=True).close()
    disk.write_atomic(folder / "replaced", b"")
    disk.lock(folder / "locked").release()
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == dict.fromkeys(("opened", "replaced", "locked"), 0o600)


def test_a_lock_file_is_not_changed_by_its_locks(tmp_path: Path) -> None:
    disk, path = PosixDisk(), tmp_path / "lock"
    disk.lock(path).release()
    found = disk.page_cache_id(path)
    disk.lock(path).release()
    assert disk.page_cache_id(path) == found


@pytest.mark.parametrize("put", [shutil.copy2, os.replace])
def test_no_copy_has_the_name_of_the_original(
    tmp_path: Path, put: Callable[[Path, Path], object]
) -> None:
    disk, path, other = PosixDisk(), tmp_path / "file", tmp_path / "other"
    disk.open(path, create=True).close()
    found = disk.page_cache_id(path)
    shutil.copy2(path, other)
    path.unlink()
    put(other, path)
    assert disk.page_cache_id(path) != found


@pytest.mark.parametrize("boot", ["", "00000000-0000-0000-0000-000000000000\n", None])
def test_a_kernel_that_does_not_name_its_boot_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str | None
) -> None:
    if boot is not None:
        (tmp_path / "boot").write_text(boot)
    monkeypatch.setattr(posix, "_BOOT_ID", tmp_path / "boot")
    with pytest.raises(OSError, match=r"does not name its boot|No such file"):
        PosixDisk().page_cache_id(tmp_path)


@pytest.mark.parametrize(
    ("call", "code", "is_told"),
    [
        ("fdatasync", errno.EIO, True),
        ("fdatasync", errno.ENOSPC, True),
        ("fsync", errno.EIO, True),
        ("pwrite", errno.EIO, True),
        ("pwrite", errno.EROFS, True),
        ("pwrite", errno.ENOSPC, False),
        ("pwritev", errno.EIO, True),
        ("ftruncate", errno.EIO, True),
        ("ftruncate", errno.EDQUOT, False),
    ],
)
def test_the_watcher_of_a_disk_is_called_before_a_failure_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, is_told: bool
) -> None:
    disk, told = PosixDisk(), []
    file = disk.open(tmp_path / "file", create=True)
    disk.watch(lambda: told.append(call))

    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    calls: dict[str, Callable[[], object]] = {
        "fdatasync": file.sync,
        "fsync": lambda: disk.sync_dir(tmp_path),
        "pwrite": lambda: file.write_at(0, b"x"),
        "pwritev": lambda: file.write_at(0, b"x", b"y"),
        "ftruncate": lambda: file.truncate(0),
    }
    with pytest.raises(OSError, match=os.strerror(code)):
        calls[call]()
    assert bool(told) is is_told
    file.close()


@pytest.mark.parametrize("parts", [(b"abcdef",), (b"abc", b"def")])
def test_a_write_that_the_kernel_cuts_short_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, ...]
) -> None:
    file = PosixDisk().open(tmp_path / "file", create=True)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:2], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, all_parts, at: pwrite(fd, all_parts[0], at))
    file.write_at(3, *parts)
    assert file.read_at(0, 100) == b"\0\0\0abcdef"
    file.close()


def test_a_read_that_the_kernel_cuts_short_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PosixDisk().open(tmp_path / "file", create=True)
    file.write_at(0, b"abcdefgh")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    assert file.read_at(1, 6) == b"bcdefg"
    assert file.read_at(1, 100) == b"bcdefgh"
    file.close()


def test_the_durations_of_syncs_are_reported(tmp_path: Path) -> None:
    durations: list[float] = []
    disk = PosixDisk(durations.append)
    disk.write_atomic(tmp_path / "file", b"x")
    assert len(durations) == 2, "of the file and of its folder"
    assert all(duration >= 0 for duration in durations)


def test_a_failed_atomic_write_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = PosixDisk(), tmp_path / "file"
    disk.write_atomic(path, b"old")

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        disk.write_atomic(path, b"new")
    assert disk.read(path) == b"old"


def test_a_part_of_a_resident_range_is_not_returned(device_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open(device_path / "file", create=True)
    file.write_at(0, b"abcdef")
    assert disk.read_resident(file, 1, 5) == b"bcdef"
    assert disk.read_resident(file, 1, 6) is None, "it ends beyond the file"
    file.close()
    assert disk.read_resident(file, 0, 1) is None


def test_the_limit_of_open_files_is_raised_to_the_hard_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [256, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.__setitem__(0, pair[0]))
    assert posix.raise_descriptor_limit() == limits[0] == 4096


def test_a_host_that_forbids_the_higher_limit_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbid(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", forbid)
    assert posix.raise_descriptor_limit() == 256


HELPER = """
import os, sys
from lakelog.runtime.posix import become_helper
become_helper(int(sys.argv[1]))
print(os.nice(0), flush=True)
for line in sys.stdin:
    print(line.strip().upper(), flush=True)
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_helper.py").write_text(HELPER)
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def test_lines_are_exchanged_until_the_helper_is_ended() -> None:
    async def scenario() -> None:
        child = await PythonProcesses().start("some_helper")
        assert int(await child.receive()) >= os.nice(0) + 10 or os.nice(0) > 9
        await child.send(b"hello")
        assert await child.receive() == b"HELLO"
        assert await child.end() != 0, "it was killed"
        assert await child.receive() == b""

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_end_of_a_helper_that_ended_by_itself_is_its_status() -> None:
    async def scenario() -> None:
        child = await PythonProcesses().start("no_such_module_of_helpers")
        assert await child.receive() == b""
        assert await child.end() == 1

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_status_of_a_process_that_has_just_ended_is_left_to_its_watcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll would take it, and the watcher would report 255."""

    def poll(process: object) -> int:
        raise AssertionError("polled")

    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "poll", poll)
            send_signal(process, signal.SIGTERM)
        assert await process.wait() == -signal.SIGTERM
        send_signal(process, signal.SIGKILL)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_helper_whose_broker_is_gone_exits_at_once() -> None:
    """Otherwise it could still write files that the next start of the broker removes."""
    helper = subprocess.run(
        [sys.executable, "-m", "some_helper", "1"], input="", capture_output=True, text=True
    )
    assert helper.returncode == 1
    assert helper.stderr.strip() == "the broker is gone"
    assert helper.stdout == ""


def test_the_usage_is_that_of_this_process() -> None:
    before = process_usage()
    assert before.cpu_s > 0
    assert before.virtual_bytes > before.resident_bytes > 1 << 20
    assert 0 < before.start_time_s <= time.time()
    assert 3 <= before.open_fds < before.fds_max


def test_an_open_file_counts_as_a_descriptor(tmp_path: Path) -> None:
    before = process_usage().open_fds
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    try:
        assert process_usage().open_fds == before + 1
    finally:
        os.close(descriptor)
    assert process_usage().open_fds == before
