"""Two processes over one file: what only a real process can show."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.metadata.errors import MetadataNotEmpty, MetadataUnavailable, MetadataUnsupported
from lakelog.metadata.store import embedded
from lakelog.metadata.store.api import Change, EntryOutcome, LogState, MetadataBatch, Snapshot
from lakelog.metadata.store.database import DatabaseFile
from lakelog.metadata.store.embedded import (
    EmbeddedStore,
    file_system_type,
    load_file,
    refuse_network_file_system,
)
from lakelog.metadata.store.liveness import Neighbourhood
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.runtime.posix import SystemClock
from waiting import until

NEIGHBOUR = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from lakelog.metadata.store.api import MetadataBatch
    from lakelog.metadata.store.embedded import EmbeddedStore
    from lakelog.runtime.posix import SystemClock

    async def main():
        store = EmbeddedStore(Path(sys.argv[1]), SystemClock(), shared=True)
        await store.open(create=True)
        await store.register_broker(2, b"2" * 16)
        term = await store.elect()
        await store.append(MetadataBatch(b"w" * 16, 1, term.epoch, b"from the neighbour"), 0)
        print("ready", flush=True)
        await asyncio.sleep(60)

    asyncio.run(main())
    """
)


@contextlib.contextmanager
def neighbour_of(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is broker 2 and the controller."""
    neighbour = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert neighbour.stdout is not None
    try:
        assert neighbour.stdout.readline() == "ready\n"
        yield neighbour
    finally:
        neighbour.kill()
        neighbour.wait()
        neighbour.stdout.close()


def test_a_killed_controller_is_replaced_and_its_entries_stay(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    async def scenario(neighbour: subprocess.Popen[str]) -> None:
        store = EmbeddedStore(path, SystemClock(), shared=True)
        await store.open(create=False)
        await store.register_broker(1, b"1" * 16)
        assert (await store.elect()).broker_id == 2
        neighbour.kill()
        neighbour.wait()
        assert set(await store.live_brokers()) == {1}
        term = await store.elect()
        assert (term.broker_id, term.epoch) == (1, 2)
        entries = (await store.read(0)).entries
        assert [entry.payload for entry in entries] == [b"from the neighbour"]
        late = MetadataBatch(b"w" * 16, 2, 1, b"of the old term")
        assert (await store.append(late, 1)).outcome is EntryOutcome.FENCED
        await store.close()

    with neighbour_of(path) as neighbour:
        asyncio.run(scenario(neighbour))


def test_the_death_of_a_process_is_reported_without_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the thread that blocks on the lock can notice it: the poller looks once."""
    monkeypatch.setattr(embedded, "_POLL_S", 1e6)
    path = tmp_path / "metadata.db"

    async def scenario(neighbour: subprocess.Popen[str]) -> None:
        store = EmbeddedStore(path, SystemClock(), shared=True)
        changes: asyncio.Queue[Change] = asyncio.Queue()
        store.watch(changes.put_nowait)
        await store.open(create=False)
        assert Change.BROKERS in await changes.get(), "the first call is for all there is"
        assert set(await store.live_brokers()) == {2}
        neighbour.kill()
        assert await changes.get() == Change.BROKERS
        assert await store.live_brokers() == {}
        await store.close()

    with neighbour_of(path) as neighbour:
        asyncio.run(asyncio.wait_for(scenario(neighbour), 120))


def test_a_stopped_process_is_reported_by_its_missing_heartbeats(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    class Clock(SystemClock):
        ahead_s = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead_s

    async def scenario(neighbour: subprocess.Popen[str]) -> None:
        clock = Clock()
        store = EmbeddedStore(path, clock, shared=True)
        changes: asyncio.Queue[Change] = asyncio.Queue()
        store.watch(changes.put_nowait)
        await store.open(create=False)
        await changes.get()
        neighbour.send_signal(signal.SIGSTOP)
        assert set(await store.live_brokers()) == {2}
        for _ in range(4):  # a longer step would be a pause of this process
            clock.ahead_s += 3.0
            await store.live_brokers()
        assert Change.BROKERS in await changes.get()
        assert await store.live_brokers() == {}
        await store.close()

    with neighbour_of(path) as neighbour:
        asyncio.run(asyncio.wait_for(scenario(neighbour), 120))


def test_a_broker_that_came_and_died_between_two_polls_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has seen it alive, so it must hear of its end."""
    monkeypatch.setattr(embedded, "_POLL_S", 1e6)
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store, other = (EmbeddedStore(path, SystemClock(), shared=True) for _ in range(2))
        changes: asyncio.Queue[Change] = asyncio.Queue()
        store.watch(changes.put_nowait)
        await store.open(create=True)
        await changes.get()
        await other.open(create=False)
        await other.register_broker(2, b"2" * 16)
        assert set(await store.live_brokers()) == {2}
        await other.close()
        assert Change.BROKERS in await changes.get()
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_the_poller_outlives_failures_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store, other = (EmbeddedStore(path, SystemClock(), shared=True) for _ in range(2))
        changes: asyncio.Queue[Change] = asyncio.Queue()
        store.watch(changes.put_nowait)
        await store.open(create=True)
        await changes.get()
        failed = asyncio.Event()
        loop = asyncio.get_running_loop()

        def fail(_: object) -> dict[int, bytes]:
            loop.call_soon_threadsafe(failed.set)
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(Neighbourhood, "live", fail)
            await failed.wait()
            await other.open(create=False)
            await other.register_broker(2, b"2" * 16)
        assert Change.BROKERS in await changes.get()
        await store.close()
        await other.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_the_poller_outlives_a_watcher_that_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metadata.db"

    async def scenario() -> None:
        store, other = (EmbeddedStore(path, SystemClock(), shared=True) for _ in range(2))
        left, changes = [2], asyncio.Queue[Change]()

        def note(change: Change) -> None:
            left[0] -= 1
            if left[0] >= 0:
                raise ValueError("planted")
            changes.put_nowait(change)

        store.watch(note)
        await store.open(create=True)
        await other.open(create=False)
        await other.register_broker(2, b"2" * 16)
        while Change.BROKERS not in await changes.get():
            pass
        await store.close()
        await other.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))
    assert caplog.text.count("watching the metadata file failed") == 1


def test_a_store_alone_runs_nothing_when_idle(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore(tmp_path / "metadata.db", SystemClock())
        await store.open(create=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await store.close()

    asyncio.run(scenario())


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = EmbeddedStore(tmp_path / "metadata.db", SystemClock())
        with pytest.raises(MetadataUnavailable, match="closed"):
            await store.read(0)

    asyncio.run(scenario())


@pytest.mark.parametrize(("timeout_s", "heartbeat_s"), [(1.0, 0.25), (9.0, 2.0)])
def test_heartbeats_come_several_times_in_a_session_timeout(
    timeout_s: float, heartbeat_s: float, tmp_path: Path
) -> None:
    """Otherwise a live broker would be fenced before its next heartbeat."""
    path = tmp_path / "metadata.db"
    store = EmbeddedStore(path, SystemClock(), shared=True, session_timeout_s=timeout_s)
    assert store._beat_every_s == heartbeat_s


@pytest.mark.parametrize("shared", [True, False])
def test_a_store_of_one_broker_needs_no_heartbeats(shared: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SystemClock()
        store = EmbeddedStore(tmp_path / "m.db", clock, shared=shared, session_timeout_s=0.4)
        await store.open(create=True)
        begun = clock.monotonic()
        await store.register_broker(1, b"1" * 16)
        assert store.heartbeat_s >= begun
        assert (store.heartbeat_s == float("inf")) is not shared
        registered = store.heartbeat_s
        if shared:
            await until(lambda: store.heartbeat_s != registered)
        await store.close()

    asyncio.run(scenario())


def test_a_file_on_a_network_file_system_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 {os.major(device)}:{os.minor(device)} / / rw - nfs4 x rw\n")
    monkeypatch.setattr(embedded, "_MOUNTS", mounts)

    async def work() -> None:
        store = EmbeddedStore(tmp_path / "metadata.db", SystemClock())
        try:
            with pytest.raises(MetadataUnsupported, match="nfs4"):
                await store.open(create=True)
        finally:
            await store.close()

    asyncio.run(work())
    assert not (tmp_path / "metadata.db").exists()


STATE = LogState(b"i" * 16, 41, b"c" * 16, 7)


def test_the_file_holds_the_state_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    load_file(path, STATE, b"records")
    assert [file.name for file in tmp_path.iterdir()] == ["metadata.db"]
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    assert log.state() == STATE
    assert log.read(0).snapshot == Snapshot(41, b"records")
    log.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-end"])
def test_files_of_another_log_are_not_touched(tmp_path: Path, suffix: str) -> None:
    other = tmp_path / f"metadata.db{suffix}"
    other.write_bytes(b"other")
    with pytest.raises(MetadataNotEmpty, match=other.name):
        load_file(tmp_path / "metadata.db", STATE, b"records")
    assert other.read_bytes() == b"other"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetadataUnavailable, match="no/metadata"):
        load_file(tmp_path / "no" / "metadata.db", STATE, b"records")


def test_a_load_keeps_no_file_open(tmp_path: Path) -> None:
    before = sorted(Path("/dev/fd").iterdir())
    load_file(tmp_path / "metadata.db", STATE, b"records")
    assert sorted(Path("/dev/fd").iterdir()) == before


MOUNTS = """\
22 28 0:20 / /proc rw shared:14 - proc proc rw
28 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
40 28 0:35 / /mnt/share rw - nfs4 server:/share rw,vers=4.2
"""


@pytest.mark.parametrize(
    ("device", "kind"), [("254:0", "ext4"), ("0:35", "nfs4"), ("9:9", None), ("/", None)]
)
def test_the_type_is_that_of_the_device(device: str, kind: str | None) -> None:
    assert file_system_type(MOUNTS, device) == kind


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("ext4", False),
        ("fuse.mergerfs", False),
    ],
)
def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 {os.major(device)}:{os.minor(device)} / / rw - {kind} x rw\n")
    monkeypatch.setattr(embedded, "_MOUNTS", mounts)
    if refused:
        with pytest.raises(MetadataUnsupported, match=kind):
            refuse_network_file_system(tmp_path)
    else:
        refuse_network_file_system(tmp_path)


def test_unreadable_mounts_refuse_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_MOUNTS", tmp_path / "none")
    refuse_network_file_system(tmp_path)
