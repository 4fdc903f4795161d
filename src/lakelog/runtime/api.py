"""What the world looks like to the broker.

Each protocol here is a constructor argument of whatever uses it; nothing above `runtime` reaches
for `time`, `random`, `os`, `socket` or `asyncio` by itself. The implementations must agree in the
contract suite, so a simulated disk may be swapped for a real one without the caller noticing
anything but the failures it was asked to inject.

Not in the contract: durability of anything not synced, atomicity of appends, and order between
files. Only `write_atomic` and `rename` promise all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio  # half the start of a command that never runs a loop
    from pathlib import Path

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall and monotonic time, kept apart because they are skewed apart."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...


class Random(Protocol):
    """Unpredictable in production, seeded in simulation."""

    def bytes(self, size: int) -> bytes: ...

    def below(self, end: int) -> int:
        """A whole number from 0 to `end` - 1."""
        ...


class File(Protocol):
    """A random-access file that is read and written at explicit positions.

    Every method may raise `OSError`. A failed `append` or `write_at` may have written a part.
    """

    @property
    def path(self) -> Path: ...

    def fileno(self) -> int: ...

    def size(self) -> int: ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; shorter only at the end of the file."""
        ...

    def write_at(self, offset: int, *data: Buffer) -> None:
        """All of `data`, one after the other, or an `OSError`."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Blocks until data and size are durable."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute. Every method may raise `OSError`."""

    def watch(self, on_failure: Callable[[], object]) -> None:
        """Calls `on_failure` before a failed write, truncation or sync raises, in its thread.

        Not for a write or truncation that failed for want of space.
        """
        ...

    def page_cache_id(self, path: Path) -> str:
        """Identifies the page cache that unsynced writes are in, and the file at `path`.

        While it stays the same, no other file was put in that place, and whatever was written to
        the file system can be read, unless the device has failed. `OSError` when the kernel does
        not name its boot.
        """
        ...

    def open(self, path: Path, *, create: bool = False) -> File:
        """For reading and writing; `FileNotFoundError` unless `create`, for its owner alone."""
        ...

    def read(self, path: Path) -> bytes: ...

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """Replaces `path` durably: a crash leaves the old content or the new, never a mixture."""
        ...

    def allocate(self, path: Path, size: int) -> None:
        """Creates a file that takes `size` bytes of the device; what they are is not said."""
        ...

    def exists(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def set_modified_ms(self, path: Path, time_ms: int) -> None: ...

    def list(self, path: Path) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def is_dir(self, path: Path) -> bool: ...

    def make_dirs(self, path: Path) -> None:
        """Creates a folder, for its owner alone, and missing parents. Not durable."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; replaces a file of that name. Durable only after `sync_dir` of the parent."""
        ...

    def remove(self, path: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def sync_dir(self, path: Path) -> None: ...

    def space(self, path: Path) -> tuple[int, int]:
        """Total and usable bytes of the file system that holds `path`."""
        ...

    def lock(self, path: Path) -> FileLock:
        """An exclusive lock that dies with the process; `BlockingIOError` when it is held."""
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """Within it is one thread at a time; never to be entered twice."""
        ...

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        """Whether reading this range would not wait for the device (a guess, never an error)."""
        ...

    def read_resident(self, file: File, offset: int, size: int) -> Buffer | None:
        """Exactly this range if reading it does not wait for the device, else none."""
        ...

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        """Blocks until the range has been read into the page cache; for use off the loop.

        Whether this has asked the device for something, of the range or what follows it.
        """
        ...

    def drop_cached(self, file: File) -> None:
        """Has the next reads ask the device, save for what it has yet to be given.

        As far as the page cache goes along with it; never an error.
        """
        ...


class Socket(Protocol):
    """The part of a non-blocking `socket.socket` that the broker uses, with its exceptions."""

    def fileno(self) -> int: ...

    def recv_into(self, buffer: bytearray | memoryview, nbytes: int = ..., /) -> int: ...

    def send(self, data: Buffer, flags: int = ..., /) -> int: ...

    def getsockname(self) -> Any: ...

    def getpeername(self) -> Any: ...

    def close(self) -> None: ...


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """Host and the port really bound."""
        ...

    def accept(self) -> Socket:
        """The next connection, non-blocking; `BlockingIOError` when there is none."""
        ...

    def close(self) -> None: ...


class Net(Protocol):
    """Sockets and their readiness. Callbacks run on the loop; `None` removes one."""

    MSG_MORE: int

    def listen(self, host: str, port: int, *, backlog: int) -> Listener: ...

    def on_acceptable(self, listener: Listener, callback: Callable[[], None] | None) -> None: ...

    def on_readable(self, sock: Socket, callback: Callable[[], None] | None) -> None: ...

    def on_writable(self, sock: Socket, callback: Callable[[], None] | None) -> None: ...

    def send_file(self, sock: Socket, file: File, offset: int, count: int) -> int:
        """Bytes taken, at least 1; `BlockingIOError` when the socket is full."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Tasks(Protocol):
    """The loop: callbacks, timers, tasks, and threads for what blocks."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer: ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]: ...

    def future(self) -> asyncio.Future[Any]: ...

    def offload(self, lane: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Runs `work` in a thread. Work of one lane never waits behind another lane's."""
        ...


class Child(Protocol):
    """Another process of this program, which is talked to in lines and ends with this one."""

    async def send(self, line: bytes) -> None:
        """A line without its end. `OSError` when the process is gone."""
        ...

    async def receive(self) -> bytes:
        """The next line without its end; empty when the process has ended."""
        ...

    async def end(self) -> int:
        """Kills it if need be, waits for it, and returns its exit status."""
        ...


class ProcessUsage(NamedTuple):
    """What a process takes of its machine. Processor seconds are of user and system together;
    `start_time_s` is in seconds since the Unix epoch.
    """

    cpu_s: float
    resident_bytes: int
    virtual_bytes: int
    open_fds: int
    fds_max: int
    start_time_s: float


class Processes(Protocol):
    """This process as the kernel counts it, and helpers.

    A helper does work that would hold up the loop if it ran in this process.
    """

    async def start(self, module: str) -> Child:
        """Runs `module` as a program. `OSError` when that is not possible."""
        ...

    def usage(self) -> ProcessUsage:
        """Of this process. `OSError` when the kernel does not say, as without descriptors."""
        ...
