"""The interfaces of the broker to the outside world.

Each protocol is a constructor argument of the code that uses it; code above `runtime` does not
import `time`, `random`, `os`, `socket` or `asyncio` for its effects. All implementations pass the
same contract suite, so that a simulated disk can replace a real one; it differs only in the
failures that a test injects.

Not in the contract: durability of unsynced writes, atomicity of appends, and the order of writes to
different files. Only `write_atomic` and `rename` are atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio  # half the start-up time of a command without a loop
    from pathlib import Path

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall time and monotonic time, which the simulation skews independently."""

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch; may jump in both directions."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment; never decreases."""
        ...

    def monotonic_ms(self) -> int:
        """Return `monotonic` in whole milliseconds."""
        ...


class Random(Protocol):
    """Random numbers: unpredictable in production, seeded in the simulation."""

    def bytes(self, size: int) -> bytes:
        """Return `size` random bytes."""
        ...

    def below(self, end: int) -> int:
        """Return a whole number from 0 to `end` - 1."""
        ...


class File(Protocol):
    """A file that is read and written at explicit positions.

    Every method may raise `OSError`. A failed `write_at` may have written a part of its data.
    """

    @property
    def path(self) -> Path: ...

    def fileno(self) -> int:
        """Return the descriptor, for `Net.send_file`."""
        ...

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`, or fewer at the end of the file. Raises `OSError`."""
        ...

    def write_at(self, offset: int, *data: Buffer) -> None:
        """Write all buffers of `data` one after the other.

        Offsets are in bytes. Raises `OSError`; a part may have been written then.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, to `size` bytes. Raises `OSError`."""
        ...

    def sync(self) -> None:
        """Block until data and size are durable. Raises `OSError`; pages may be lost then."""
        ...

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        ...


class FileLock(Protocol):
    """An exclusive lock that this process holds."""

    def release(self) -> None:
        """Release the lock."""
        ...


class Disk(Protocol):
    """A file system. Paths are absolute. Every method may raise `OSError`."""

    def watch(self, on_failure: Callable[[], object]) -> None:
        """Call `on_failure` before a failed write, truncation or sync raises, in the same thread.

        A write or truncation that fails for lack of space is not reported.
        """
        ...

    def page_cache_id(self, path: Path) -> str:
        """Return an id of the page cache that holds unsynced writes, and of the file at `path`.

        While the id stays the same, the file was not replaced, and everything that was written to
        the file system is readable, unless the device failed. Raises `OSError` when the kernel has
        no boot id.
        """
        ...

    def file_id(self, path: Path) -> str:
        """Return an id of the file at `path` that no copy of it has, and that a reboot keeps.

        Raises `OSError` if the file is missing.
        """
        ...

    def inode(self, path: Path) -> int:
        """Return a number that the file keeps when it is renamed.

        A copy has another, unless the file was removed before. Raises `OSError` if it is missing.
        """
        ...

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open a file for reading and writing; `create` it if needed, accessible to its owner only.

        Raises `FileNotFoundError`.
        """
        ...

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises `FileNotFoundError`."""
        ...

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """Replace `path` durably: a crash leaves either the old content or the new.

        Raises `OSError`; the old content then remains, or the new one is not durable yet.
        """
        ...

    def allocate(self, path: Path, size: int) -> None:
        """Create a file that occupies `size` bytes of the device, with undefined content."""
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder exists."""
        ...

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes. Raises `FileNotFoundError`."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return the time of the last change, milliseconds since the epoch."""
        ...

    def set_modified_ms(self, path: Path, time_ms: int) -> None:
        """Set the time of the last change, milliseconds since the epoch."""
        ...

    def list(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted. Raises `FileNotFoundError`."""
        ...

    def is_dir(self, path: Path) -> bool:
        """Return whether `path` is a folder."""
        ...

    def make_dirs(self, path: Path) -> None:
        """Create a folder, accessible to its owner only, and missing parents. Not durable."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically, replacing `target`. Durable only after `sync_dir` of the parent."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; durable only after `sync_dir`. Raises `FileNotFoundError`."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with its contents; durable only after `sync_dir` of its parent."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Block until the names in a folder are durable. Raises `OSError`."""
        ...

    def space(self, path: Path) -> tuple[int, int]:
        """Return the total and the usable bytes of the file system of `path`."""
        ...

    def lock(self, path: Path) -> FileLock:
        """Take an exclusive lock that ends with the process.

        Raises `BlockingIOError` while another process holds it.
        """
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """Return a lock between threads, which is not reentrant."""
        ...

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        """Return whether this range is probably in the page cache. Never raises.

        Offset and size are in bytes.
        """
        ...

    def read_resident(self, file: File, offset: int, size: int) -> Buffer | None:
        """Return this range if it is in the page cache, else none.

        Offset and size are in bytes. Raises nothing: errors count as not resident.
        """
        ...

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        """Block until the range is in the page cache; call it in a thread.

        Return whether the device was read, for this range or for the kernel's own read-ahead.
        """
        ...

    def drop_cached(self, file: File) -> None:
        """Drop clean pages, so that the next reads hit the device; dirty pages stay.

        The kernel may keep pages. Never raises.
        """
        ...


class Socket(Protocol):
    """The part of a non-blocking `socket.socket` that the broker uses, with its exceptions."""

    @property
    def sends_files(self) -> bool:
        """Whether `Net.send_file` may send from a file: the socket sends its bytes unchanged."""
        ...

    def fileno(self) -> int:
        """Return the descriptor."""
        ...

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = ..., /) -> int:
        """Read up to `nbytes`; return the number of bytes, 0 at the end of the stream.

        Raises `BlockingIOError` if nothing has arrived, and `OSError`.
        """
        ...

    def send(self, data: Buffer, flags: int = ..., /) -> int:
        """Send a part of the data; return the number of bytes sent.

        Raises `BlockingIOError` if the socket is full, and `OSError`.
        """
        ...

    def getsockname(self) -> Any: ...

    def getpeername(self) -> Any: ...

    def close(self) -> None: ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that is bound."""
        ...

    def accept(self) -> Socket:
        """Return the next connection, non-blocking. Raises `BlockingIOError` without one."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Net(Protocol):
    """Sockets and their readiness. Callbacks run on the loop; `None` removes a callback."""

    MSG_MORE: int

    def listen(self, host: str, port: int, *, backlog: int) -> Listener:
        """Return a listening socket; port 0 selects a free port.

        backlog: connections that the kernel holds before they are accepted. Raises `OSError`, for
        example if the address is in use.
        """
        ...

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Socket:
        """Return a connected, non-blocking socket to a numeric address or a host name.

        Raises `OSError`: `TimeoutError` after `timeout_s`, `ConnectionRefusedError` when nothing
        listens there. A cancelled call leaves no connection. timeout_s: seconds.
        """
        ...

    def on_acceptable(self, listener: Listener, callback: Callable[[], None] | None) -> None:
        """Call `callback` while a connection waits."""
        ...

    def on_readable(self, sock: Socket, callback: Callable[[], None] | None) -> None:
        """Call `callback` while data or the end of the stream waits."""
        ...

    def on_writable(self, sock: Socket, callback: Callable[[], None] | None) -> None:
        """Call `callback` while the socket accepts data."""
        ...

    def send_file(self, sock: Socket, file: File, offset: int, count: int) -> int:
        """Send a range of a file; return the number of bytes sent, at least 1.

        Raises `BlockingIOError` when the socket is full.
        """
        ...


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Drop the call unless it has begun."""
        ...


class Tasks(Protocol):
    """The event loop: callbacks, timers, tasks, and threads for blocking work."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` on the loop, after the calls that were scheduled before."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback` on the loop after `delay_s` seconds."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run a coroutine as a task of the loop; the caller keeps a reference to it."""
        ...

    def future(self) -> asyncio.Future[Any]:
        """Return a future of the loop."""
        ...

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` in a thread of the lane. Lanes do not wait for each other.

        The result or the error of `work` arrives on the loop.
        """
        ...


def complete(future: asyncio.Future[Any]) -> None:
    """Set the result of a future that is not done to None."""
    if not future.done():
        future.set_result(None)


async def pause(tasks: Tasks, delay_s: float, over: asyncio.Future[Any] | None = None) -> None:
    """Wait for `delay_s` seconds, or until `over` is done. A cancelled call leaves no timer."""
    over = tasks.future() if over is None else over
    timer = tasks.call_later(delay_s, complete, over)
    try:
        await over
    finally:
        timer.cancel()


class Iterations(Protocol):
    """The iterations of the event loop, which several kinds of work share
    (`runtime.loop_iterations`)."""

    def add(self, part: Callable[[], object]) -> None:
        """Call `part` in every loop iteration that was asked for, after the parts added before."""
        ...

    def want(self) -> None:
        """Schedule another loop iteration; a part that leaves work calls this before it returns."""
        ...

    def run_some(self, pieces: int, piece: Callable[[], bool]) -> None:
        """Call `piece` until it returns False or the part has had its time, `pieces` times at most.

        The first piece always runs.
        """
        ...


class Child(Protocol):
    """A helper process that exchanges lines with this process and ends with it."""

    async def send(self, line: bytes) -> None:
        """Send a line, given without its end. Raises `OSError` when the process has ended."""
        ...

    async def receive(self) -> bytes:
        """Return the next line without its end; empty when the process has ended."""
        ...

    async def end(self) -> int:
        """Kill the process if it still runs, wait for it, and return its exit status."""
        ...


class ProcessUsage(NamedTuple):
    """The resource usage of a process.

    `cpu_s` is the sum of user and system time. `start_time_s` is in seconds since the Unix epoch.
    """

    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    open_fds: int
    fds_max: int
    start_time_s: float


class Processes(Protocol):
    """The resource usage of this process, and helper processes.

    A helper does work that would block the event loop of this process.
    """

    async def start(self, module: str) -> Child:
        """Start a helper that runs `module` as a program. Raises `OSError`."""
        ...

    def usage(self) -> ProcessUsage:
        """Return the usage of this process.

        Raises `OSError`, for example when no descriptors are left.
        """
        ...
