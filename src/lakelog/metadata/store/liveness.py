"""The liveness of the brokers on this host: a lock that ends with its owner, and a heartbeat.

The lock alone is not enough: a stopped process keeps it, and so does a forked child. The heartbeat
alone is slow. A heartbeat is a reading of the monotonic clock, which all processes of a host share.
It is written to the page cache only, because no broker survives a crash of the host.

Threads block on the locks of other brokers and so detect the death of a process at once: the kernel
releases the lock of a process that dies. Stopped processes, which keep their locks, and new brokers
are detected by the poller (`embedded.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from lakelog.metadata.errors import BrokerIdInUse

_FORM = struct.Struct(">16sd")
_LOCK_TRIES = 20
_LOCK_RETRY_S = 0.01


class Registration:
    """The lock file of one broker, held by this process."""

    def __init__(self, path: Path, incarnation_id: bytes, monotonic: Callable[[], float]) -> None:
        """Take the lock; a probe by another process holds it for a moment, which is waited out.

        Raises `BrokerIdInUse` and `OSError`.
        """
        self._monotonic = monotonic
        self._incarnation_id = incarnation_id
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _try_lock(self._fd, fcntl.LOCK_EX, _LOCK_TRIES):
            os.close(self._fd)
            raise BrokerIdInUse(
                f"{path} is held by another process that runs this broker id; "
                "start each broker with a --node-id of its own"
            )
        self.beat()

    def beat(self) -> None:
        """Write a heartbeat. Raises `OSError`."""
        os.pwrite(self._fd, _FORM.pack(self._incarnation_id, self._monotonic()), 0)

    def is_in_place(self) -> bool:
        """Return whether other brokers find this file: it was not deleted or replaced."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            return False

    def renewed(self) -> Registration:
        """Return a registration in a new file, in place of this one.

        Raises `BrokerIdInUse` and `OSError`; this registration stays then.
        """
        new = Registration(self._path, self._incarnation_id, self._monotonic)
        self.release()
        return new

    def release(self) -> None:
        """Release the lock: other brokers then count this broker as dead."""
        os.close(self._fd)


class Neighbourhood:
    """The lock files of all brokers that share one metadata file."""

    def __init__(self, database: Path, monotonic: Callable[[], float], timeout_s: float) -> None:
        self._folder = database.parent
        self._prefix = f"{database.name}-broker-"
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self._looked_s: float | None = None
        self._resumed_s = float("-inf")

    def register(self, broker_id: int, incarnation_id: bytes) -> Registration:
        """Register a broker of this process. Raises `BrokerIdInUse` and `OSError`."""
        return Registration(self._path(broker_id), incarnation_id, self._monotonic)

    def live(self, within_s: float = float("inf")) -> dict[int, bytes]:
        """Return the incarnation ids of the brokers with a lock and a recent heartbeat.

        Recent means within `timeout_s` seconds, and within `within_s`. Raises `OSError`.
        """
        self._note_look()
        alive = {}
        pattern = re.compile(re.escape(self._prefix) + r"([0-9]{1,10})")
        for name in os.listdir(self._folder):  # noqa: PTH208 - names, not paths
            if match := pattern.fullmatch(name):
                path = self._path(int(match[1]))
                incarnation_id = self._probe(path, min(self._timeout_s, within_s))
                if incarnation_id is not None:
                    alive[int(match[1])] = incarnation_id
        return alive

    def _note_look(self) -> None:
        """Notice a pause of this process, after which every broker has a full timeout again.

        The brokers of a host are often paused together, and none has beaten meanwhile.
        """
        looked_s, self._looked_s = self._looked_s, self._monotonic()
        if looked_s is not None and self._looked_s - looked_s > self._timeout_s / 2:
            self._resumed_s = self._looked_s

    def wait_for_release(self, broker_id: int) -> None:
        """Block until no process holds this broker's lock.

        A stopped process keeps its lock, and so does a forked child. Raises `OSError`.
        """
        fd = os.open(self._path(broker_id), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def _path(self, broker_id: int) -> Path:
        return self._folder / f"{self._prefix}{broker_id}"

    def _probe(self, path: Path, within_s: float) -> bytes | None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # No process holds it: the owner is dead, even with a recent heartbeat.
            if _try_lock(fd, fcntl.LOCK_SH, 1):
                return None
            data = os.pread(fd, _FORM.size, 0)
        finally:
            os.close(fd)
        if len(data) < _FORM.size:
            return None
        incarnation_id, beaten = _FORM.unpack(data)
        silence_s = self._monotonic() - max(beaten, self._resumed_s)
        return incarnation_id if silence_s < within_s else None


def _try_lock(fd: int, kind: int, tries: int) -> bool:
    for attempt in range(tries):
        if attempt:
            time.sleep(_LOCK_RETRY_S)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
    return False


class DeathWatch:
    """One thread for each watched broker.

    A thread that blocks on a lock cannot be interrupted. After `close` each thread therefore
    remains until its broker or this process ends, and reports nothing; it is a daemon thread, so
    that it does not delay the end of the process.
    """

    def __init__(self, neighbourhood: Neighbourhood, on_death: Callable[[], None]) -> None:
        """`on_death` is called in one of the threads."""
        self._neighbourhood = neighbourhood
        self._on_death = on_death
        self._waiting: set[int] = set()
        self._mutex = threading.Lock()
        self._closed = False

    def follow(self, broker_ids: Iterable[int]) -> None:
        """Watch these brokers in addition to the watched ones."""
        with self._mutex:
            new = set(broker_ids) - self._waiting
            self._waiting |= new
        for broker_id in sorted(new):
            name = f"lakelog-broker-{broker_id}-watch"
            threading.Thread(target=self._wait, args=(broker_id,), name=name, daemon=True).start()

    def close(self) -> None:
        """Report no further death; the waiting threads remain until their broker ends."""
        with self._mutex:
            self._closed = True

    def _wait(self, broker_id: int) -> None:
        try:
            self._neighbourhood.wait_for_release(broker_id)
            is_dead = True
        except OSError:  # too many open files: the next round of the poller starts a new thread
            is_dead = False
        with self._mutex:
            assert broker_id in self._waiting, "a broker has one thread"
            # Under the mutex: `follow` must start a new thread if the broker registers again.
            self._waiting.discard(broker_id)
            if is_dead and not self._closed:
                self._on_death()
