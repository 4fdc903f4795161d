"""Clock, disk, randomness and helper processes of a Linux host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.base.errors import is_shortage
from lakelog.runtime.api import Buffer, Child, File, FileLock, ProcessUsage

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_OWN_FILE, _OWN_FOLDER = 0o600, 0o700
"""Permissions: only the user of the broker may read records and metadata."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PROBE = (bytearray(1),)
"""A buffer for bytes that are ignored."""


@cache
def _dev_null() -> int:
    """Return a descriptor of /dev/null, one for the process, opened with the disk."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _blocks_read() -> int:
    """Return the number of blocks that the device has read for this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def _ignore(_: float) -> None:
    """Ignore the duration of a sync."""


class _Watch:
    """The callbacks for durations of syncs and for failures of the device; one for each disk."""

    __slots__ = ("on_failure", "on_sync")

    def __init__(self, on_sync: Callable[[float], object] = _ignore) -> None:
        self.on_sync = on_sync
        self.on_failure: Callable[[], object] = tuple

    def sync(self, sync: Callable[[int], None], fd: int) -> None:
        """Sync and report. Every error is a failure: after ENOSPC, too, pages may be lost."""
        begin = time.monotonic()
        try:
            sync(fd)
        except OSError:
            self.on_failure()
            raise
        self.on_sync(time.monotonic() - begin)

    def note(self, error: OSError) -> None:
        """Report a failed write or truncation, unless it failed for a shortage."""
        if not is_shortage(error):
            self.on_failure()


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)

    def monotonic_ms(self) -> int:
        return int(self.monotonic() * 1000)


class SystemRandom:
    _random = random.SystemRandom()

    def bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def below(self, end: int) -> int:
        return self._random.randrange(end)


class PosixFile:
    """An open descriptor. Positions are always explicit, so any thread may read it."""

    __slots__ = ("_fd", "_path", "_watch")

    def __init__(self, path: Path, fd: int, watch: _Watch) -> None:
        self._path = path
        self._fd = fd
        self._watch = watch

    @property
    def path(self) -> Path:
        return self._path

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        first = os.pread(self._fd, size, offset)
        if len(first) == size or not first:
            return first
        # A read is short at the end of the file, or after a signal.
        parts = [first]
        done = len(first)
        while done < size and (part := os.pread(self._fd, size - done, offset + done)):
            parts.append(part)
            done += len(part)
        return b"".join(parts)

    def write_at(self, offset: int, *data: Buffer) -> None:
        try:
            if len(data) == 1:
                written = os.pwrite(self._fd, data[0], offset)
                if written == len(data[0]):
                    return
            else:
                written = os.pwritev(self._fd, data, offset)
                if written == sum(map(len, data)):
                    return
            # A write may be short: a signal, or the last bytes of a full disk.
            rest = memoryview(b"".join(data))
            while written < len(rest):
                written += os.pwrite(self._fd, rest[written:], offset + written)
        except OSError as error:
            self._watch.note(error)
            raise

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            self._watch.note(error)
            raise

    def sync(self) -> None:
        self._watch.sync(os.fdatasync, self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            # The number may soon belong to another file, so it must not be used again.
            self._fd = -1


class PosixFileLock:
    """A `flock` on a file that is never removed: removal would let two processes hold a lock."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class PosixDisk:
    """The file system.

    `on_sync` is called in the thread of each fsync, with its duration in seconds.
    """

    def __init__(self, on_sync: Callable[[float], object] = _ignore) -> None:
        self._watch = _Watch(on_sync)
        _dev_null()

    def watch(self, on_failure: Callable[[], object]) -> None:
        self._watch.on_failure = on_failure

    def page_cache_id(self, path: Path) -> str:
        """Return the boot id of the kernel with device, inode and ctime of the file.

        No copy of the file has the same. A file system that was forcibly unmounted and mounted
        again does, so that this loss of the page cache is not detected. Raises `OSError` if the
        file is missing or the kernel has no boot id.
        """
        boot = _BOOT_ID.read_text().strip()
        if not boot.strip("-0"):
            raise OSError(errno.ENODATA, "the kernel does not name its boot", str(_BOOT_ID))
        status = path.stat()
        return f"{boot} {status.st_dev} {status.st_ino} {status.st_ctime_ns}"

    def file_id(self, path: Path) -> str:
        """Return inode and ctime of the file. The device's number may be another after a reboot."""
        status = path.stat()
        return f"{status.st_ino} {status.st_ctime_ns}"

    def inode(self, path: Path) -> int:
        return path.stat().st_ino

    def open(self, path: Path, *, create: bool = False) -> PosixFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return PosixFile(path, os.open(path, flags, _OWN_FILE), self._watch)

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises `OSError`.

        Avoids the layers of `open()`, which take five times as long for a small file.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return PosixFile(path, fd, self._watch).read_at(0, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def write_atomic(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _OWN_FILE)
        file = PosixFile(temporary, fd, self._watch)
        try:
            file.write_at(0, data)
            self._watch.sync(os.fsync, fd)
        finally:
            file.close()
        # Only after the sync: a durable name of unsynced content would be an empty file.
        temporary.replace(path)
        self.sync_dir(path.parent)

    def allocate(self, path: Path, size: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWN_FILE)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def list(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not paths

    def is_dir(self, path: Path) -> bool:
        return path.is_dir()

    def make_dirs(self, path: Path) -> None:
        path.mkdir(_OWN_FOLDER, parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        import shutil  # it imports three compression modules, which a start does not need

        shutil.rmtree(path)

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._watch.sync(os.fsync, fd)
        finally:
            os.close(fd)

    def space(self, path: Path) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def lock(self, path: Path) -> FileLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWN_FILE)
        try:
            # `flock` ends with the process, however it dies, unlike a file with a process id.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return PosixFileLock(fd)

    def mutex(self) -> threading.Lock:
        return threading.Lock()

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        """Return whether the range is probably in the page cache.

        Probes the first and the last byte: eviction and read-ahead work on whole ranges.
        """
        fd = file.fileno()
        try:
            os.preadv(fd, _PROBE, offset, _RWF_NOWAIT)
            if size > 1:
                os.preadv(fd, _PROBE, offset + size - 1, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def read_resident(self, file: File, offset: int, size: int) -> Buffer | None:
        buffer = bytearray(size)
        try:
            got = os.preadv(file.fileno(), [buffer], offset, _RWF_NOWAIT)
        except OSError:
            return None
        return buffer if got == size else None

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        """Read the range without a copy, by `sendfile` to /dev/null. Raises `OSError`.

        `POSIX_FADV_WILLNEED` would fill single pages, which cost several times as much as the
        larger folios that the kernel's read-ahead allocates for a reader.
        """
        fd, position, end = file.fileno(), offset, offset + size
        before = _blocks_read()
        while position < end and (got := os.sendfile(_dev_null(), fd, position, end - position)):
            position += got
        return _blocks_read() != before

    def drop_cached(self, file: File) -> None:
        with contextlib.suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Segments and connections share the descriptors; the usual soft limit is 1,024.
    if soft < hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft


_STATUS, _BOOT = Path("/proc/self/stat"), Path("/proc/stat")
_DESCRIPTORS = Path("/proc/self/fd")
_START_TICKS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 19, 20, 21
"""Indexes of fields in /proc/self/stat after the name of the command."""


def process_usage() -> ProcessUsage:
    """Return the current usage. Raises `OSError`, for example when no descriptors are left."""
    fields = _STATUS.read_text().rpartition(")")[2].split()
    cpu = resource.getrusage(resource.RUSAGE_SELF)
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return ProcessUsage(
        cpu_s=cpu.ru_utime + cpu.ru_stime,
        resident_bytes=int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[_VIRTUAL_BYTES]),
        open_fds=len(list(_DESCRIPTORS.iterdir())) - 1,  # the listing itself uses one
        fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        start_time_s=_boot_time_s() + int(fields[_START_TICKS]) / ticks_per_s,
    )


def _boot_time_s() -> int:
    line = next(line for line in _BOOT.read_text().splitlines() if line.startswith("btime "))
    return int(line.split()[1])


_PR_SET_PDEATHSIG = 1
_NICENESS = 10


class ChildProcess:
    """A `Child` of `lakelog.runtime.api`, over pipes."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout

    async def send(self, line: bytes) -> None:
        self._input.write(line + b"\n")
        await self._input.drain()

    async def receive(self) -> bytes:
        line = await self._output.readline()
        return line[:-1] if line.endswith(b"\n") else b""

    async def end(self) -> int:
        send_signal(self._process, signal.SIGKILL)
        self._input.close()
        return await self._process.wait()


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process that was started by asyncio; nothing if it has ended."""
    if process.returncode is not None:
        return
    # Not `process.send_signal`: it polls the process first. If it has just ended, that takes its
    # status away from the watcher of the loop, which then reports 255 (CPython's gh-87744).
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


class PythonProcesses:
    """The `Processes` of `lakelog.runtime.api`, with the Python of this process."""

    async def start(self, module: str) -> Child:
        from asyncio.subprocess import PIPE, create_subprocess_exec  # commands without a loop

        command = (sys.executable, "-m", module, str(os.getpid()))
        return ChildProcess(await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE))

    def usage(self) -> ProcessUsage:
        return process_usage()


def become_helper(parent: int) -> None:
    """Make this process a helper of the process `parent`: niced, and killed when `parent` dies.

    A helper calls this first. Exits if `parent` is dead already.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the broker handles ^C and then ends its helpers
    with contextlib.suppress(OSError, AttributeError):
        import ctypes  # only helpers pay for the import

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the broker is gone")
    os.nice(_NICENESS)
