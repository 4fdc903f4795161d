"""Two processes over one file: what only a real process can show."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.api import MetadataBatch, Outcome
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.runtime.posix import SystemClock

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


def test_a_killed_controller_is_replaced_and_its_entries_stay(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    neighbour = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert neighbour.stdout is not None

    async def scenario() -> None:
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
        assert (await store.append(late, 1)).outcome is Outcome.FENCED
        await store.close()

    try:
        assert neighbour.stdout.readline() == "ready\n"
        asyncio.run(scenario())
    finally:
        neighbour.kill()
        neighbour.wait()
        neighbour.stdout.close()


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
