"""The metadata log in the data folder: SQLite on its own thread, for one process or several.

Several processes of one host may share the file. Only then (`shared`) is there a timer: it sends
the heartbeat and compares the file and the live brokers with its previous poll. Threads that block
on the locks of the other brokers cut its waiting short (`liveness.py`). A broker alone does nothing
when idle.

The file of a log that was moved from another store is whole and durable, or not there: it is
written under another name and then linked to its own, which fails if a file has it. Folders on
network file systems are rejected: SQLite relies on local locks and shared memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from lakelog.base.events import FailingTask
from lakelog.metadata.errors import (
    MetadataError,
    MetadataNotEmpty,
    MetadataUnavailable,
    MetadataUnsupported,
    is_lasting,
)
from lakelog.metadata.store import api
from lakelog.metadata.store.chain import Marks
from lakelog.metadata.store.database import DatabaseFile
from lakelog.metadata.store.liveness import DeathWatch, Neighbourhood, Registration
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.runtime.api import Clock

_SUFFIXES = ("", "-wal", "-shm", "-end")


def load_file(path: Path, state: api.LogState, payload: bytes) -> None:
    """Create the file of a log that ends at `state`, with the records of its image.

    Raises `MetadataNotEmpty` and `MetadataUnavailable`.
    """
    files = [file for suffix in _SUFFIXES if (file := _beside(path, suffix)).exists()]
    if files:
        raise MetadataNotEmpty(f"{files[0]} exists already; choose another file, or move it away")
    made = _beside(path, ".new")
    try:
        _remove(made)
        _write(made, state, payload)
        os.link(made, path)
        _sync(path.parent)
    except FileExistsError:
        raise MetadataNotEmpty(f"{path} exists already; choose another file") from None
    except OSError as error:
        raise MetadataUnavailable(f"{path}: {error.strerror or error}") from error
    finally:
        _remove(made)


def _write(path: Path, state: api.LogState, payload: bytes) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=True)
    try:
        log.load(state, payload)
    finally:
        log.close()  # which moves the journal into the file
    _sync(path)


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        _beside(path, suffix).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)
_NETWORK_FUSE = ("s3", "sshfs", "gluster", "ceph", "rclone", "gcsfuse", "blobfuse", "juicefs")


def refuse_network_file_system(folder: Path) -> None:
    """Raise `MetadataUnsupported` if `folder` is on a network file system.

    Where the list of mounts cannot be read, every folder is accepted.
    """
    try:
        device = folder.stat().st_dev
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    kind = file_system_type(mounts, f"{os.major(device)}:{os.minor(device)}")
    if kind is not None and _is_network(kind):
        raise MetadataUnsupported(
            f"{folder} is on a network file system ({kind}), which can lose or corrupt metadata; "
            "choose a folder on a local disk"
        )


def file_system_type(mounts: str, device: str) -> str | None:
    """Return the type of the file system on `device` ("MAJOR:MINOR"), or none if it is not mounted.

    `mounts` is the text of `/proc/<pid>/mountinfo` (proc(5)).
    """
    for line in mounts.splitlines():
        mount, separator, rest = line.partition(" - ")
        fields = mount.split()
        if separator and len(fields) > 2 and fields[2] == device:
            return rest.split()[0]
    return None


def _is_network(kind: str) -> bool:
    if kind.startswith("fuse."):
        return kind.removeprefix("fuse.").startswith(_NETWORK_FUSE)
    return kind in _NETWORK


_logger = logging.getLogger(__name__)

T = TypeVar("T")

METADATA_FILE = "metadata.db"
_POLL_S = 0.1
_HEARTBEAT_S_MAX = 2.0
_HEARTBEATS_PER_TIMEOUT = 4


class _View(NamedTuple):
    """The state of the store at one round of the poller."""

    data_version: int
    term: api.ControllerTerm
    brokers_version: int

    def changes_since(self, old: _View | None) -> api.Change:
        """Return the parts that may differ from an older view; all parts without one.

        SQLite does not report which rows another connection changed, so any commit may have added
        entries.
        """
        if old is None:
            return ~api.NO_CHANGE
        return (
            (api.Change.ENTRIES if self.data_version != old.data_version else api.NO_CHANGE)
            | (api.Change.TERM if self.term != old.term else api.NO_CHANGE)
            | (api.Change.BROKERS if self.brokers_version != old.brokers_version else api.NO_CHANGE)
        )


class EmbeddedStore:
    """A `MetadataStore`. All calls come from one event loop."""

    entry_bytes_max = api.BATCH_BYTES_MAX

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        shared: bool = False,
        session_timeout_s: float = 4.0,
        marks: Marks | None = None,
    ) -> None:
        """`marks` are of the data folder of the broker, which has one, unlike a command."""
        self._path = path
        self._shared = shared
        self._log = SqliteLog(DatabaseFile(path), marks)
        timeout_s = session_timeout_s if shared else float("inf")
        self._clock = clock
        self._beat_every_s = min(_HEARTBEAT_S_MAX, timeout_s / _HEARTBEATS_PER_TIMEOUT)
        self._neighbourhood = Neighbourhood(path, clock.monotonic, timeout_s)
        self._registration: Registration | None = None
        self._broker_id = -1
        self._incarnation_id = b""
        self.heartbeat_s = float("-inf") if shared else float("inf")
        self._thread: ThreadPoolExecutor | None = None
        self._poller: asyncio.Task[None] | None = None
        self._watchers: list[Callable[[api.Change], None]] = []
        self._deaths: DeathWatch | None = None
        self._brokers: dict[int, bytes] = {}
        self._brokers_version = 0

    async def open(self, *, create: bool) -> None:
        assert self._thread is None, "a store is opened once"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakelog-metadata")
        try:
            await self._run(lambda: self._open(create))
        except BaseException:
            await self.close()
            raise
        if self._shared:
            loop, died = asyncio.get_running_loop(), asyncio.Event()
            self._deaths = DeathWatch(self._neighbourhood, lambda: _set(loop, died))
            self._poller = loop.create_task(self._poll(died), name="metadata-poll")

    async def append(self, batch: api.MetadataBatch, expected_end: int) -> api.AppendOutcome:
        assert len(batch.payload) <= self.entry_bytes_max
        return await self._run(lambda: self._log.append(batch, expected_end))

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        return await self._run(lambda: self._log.position_of(writer_id, serial))

    async def read(self, from_index: int) -> api.LogRead:
        return await self._run(lambda: self._log.read(from_index))

    async def write_snapshot(self, snapshot: api.Snapshot) -> None:
        await self._run(lambda: self._log.write_snapshot(snapshot))

    def watch(self, callback: Callable[[api.Change], None]) -> None:
        self._watchers.append(callback)

    def watch_device(self, on_failure: Callable[[], object]) -> None:
        self._log.on_device_failure = on_failure

    async def register_broker(self, broker_id: int, incarnation_id: bytes) -> None:
        assert self._registration is None
        sent_s = self._clock.monotonic()
        self._registration = await self._run(
            lambda: self._neighbourhood.register(broker_id, incarnation_id)
        )
        self._note_heartbeat(sent_s)
        self._broker_id, self._incarnation_id = broker_id, incarnation_id

    async def live_brokers(self) -> Mapping[int, bytes]:
        return await self._run(self._live)

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        return await self._run(lambda: self._beating(within_s))

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        """Do nothing: the system frees the lock of an ended process at once."""

    async def controller(self) -> api.ControllerTerm:
        return await self._run(self._log.controller)

    async def elect(self, *, past: int = -1) -> api.ControllerTerm:
        assert self._registration is not None
        return await self._run(lambda: self._elect(past))

    async def resign(self, epoch: int) -> api.ControllerTerm:
        return await self._run(lambda: self._log.end_term(epoch))

    async def state(self) -> api.LogState:
        return await self._run(self._log.state)

    async def load(self, state: api.LogState, payload: bytes) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakelog-metadata")
        await self._run(lambda: self._load(state, payload))

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
            self._poller = None
        if self._deaths is not None:
            self._deaths.close()
            self._deaths = None
        if self._thread is None:
            return
        await self._run(self._close)
        self._thread.shutdown()
        self._thread = None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise MetadataUnavailable(f"{self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self, create: bool) -> None:
        refuse_network_file_system(self._path.parent)
        self._log.open(create=create)

    def _load(self, state: api.LogState, payload: bytes) -> None:
        refuse_network_file_system(self._path.parent)
        load_file(self._path, state, payload)

    def _close(self) -> None:
        if self._registration is not None:
            self._registration.release()
            self._registration = None
        self._log.close()

    def _elect(self, past: int) -> api.ControllerTerm:
        term = self._log.controller()
        # A live controller keeps its term. This broker takes a new one even after its own: its
        # earlier process may have left an append under way.
        is_others = term.broker_id != self._broker_id and term.epoch != past
        if is_others and term.is_held(self._live()):
            return term
        return self._log.take_term(self._broker_id, self._incarnation_id, term)

    def _beat(self) -> bool:
        if self._registration is not None:
            sent_s = self._clock.monotonic()
            self._registration.beat()
            self._note_heartbeat(sent_s)
        return True

    def _note_heartbeat(self, sent_s: float) -> None:
        if self._shared:
            self.heartbeat_s = sent_s

    def _look(self) -> _View:
        """Return the current view.

        The version is read first: a change after it has another version in the next view.
        """
        version = self._log.data_version()
        self._live()
        return _View(version, self._log.controller(), self._brokers_version)

    def _live(self) -> Mapping[int, bytes]:
        """Return the live brokers, and record the change for the watchers.

        A broker that a caller has seen alive may die before the next round of the poller, which
        would find the same brokers as the poll before and report nothing.
        """
        self._log.check_place()  # without the file, others are not dead, and no broker is elected
        try:
            if self._registration is not None and not self._registration.is_in_place():
                self._registration = self._registration.renewed()
            live = self._neighbourhood.live()
        except OSError as error:
            raise MetadataUnavailable(f"{self._path.parent}: {error}") from error
        if self._deaths is not None:
            self._deaths.follow(live.keys() - {self._broker_id})
        if live != self._brokers:
            self._brokers = live
            self._brokers_version += 1
        return live

    def _beating(self, within_s: float) -> Mapping[int, bytes]:
        try:
            return self._neighbourhood.live(within_s if self._shared else float("inf"))
        except OSError as error:
            raise MetadataUnavailable(f"{self._path.parent}: {error}") from error

    def _report(self, change: api.Change) -> None:
        if change:
            for callback in self._watchers:
                callback(change)

    async def _try(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, or none after a failure that may be temporary.

        A lasting failure is reported as a change of everything: the caller's next call raises it.
        """
        try:
            return await self._run(work)
        except MetadataError as error:
            if is_lasting(error):
                self._report(~api.NO_CHANGE)
            return None
        except OSError:
            return None

    async def _poll(self, died: asyncio.Event) -> None:
        """Runs until cancelled; a failed poll is repeated."""
        loop = asyncio.get_running_loop()
        view, beaten, change = None, loop.time(), api.NO_CHANGE
        task = FailingTask(_logger, "watching the metadata file")
        while True:
            if died.is_set():
                died.clear()
                change = api.Change.BROKERS  # even if the broker has registered again since
            try:
                if loop.time() - beaten >= self._beat_every_s and await self._try(self._beat):
                    # Only after a success: a failed heartbeat is repeated at the next poll.
                    beaten = loop.time()
                if (latest := await self._try(self._look)) is not None:
                    self._report(change | latest.changes_since(view))
                    # A death stays in `change` until its report, or it would be lost.
                    view, change = latest, api.NO_CHANGE
            except Exception as bug:  # noqa: BLE001 - without heartbeats others count this one dead
                task.failed(bug)
            else:
                task.succeeded()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await died.wait()


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set the event from another thread, which may outlive the loop."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)
