"""Lost connections and expired sessions: of a real ensemble, and of the simulated one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

import zookeeper_ensemble
from doubles.randomness import SeededRandom
from doubles.zookeeper import SimulatedEnsemble, SimulatedSession
from lakelog.metadata.store.api import EntryOutcome, MetadataBatch
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
from lakelog.metadata.store.zookeeper.session import Create, Put, ZooKeeperSession
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock, SystemRandom
from waiting import until

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.java]
VERSIONS = (zookeeper_ensemble.NEWEST, zookeeper_ensemble.OLDEST)
_TIMEOUT_S = 4.0
_PATIENCE_S = 60.0


class Proxy:
    """Passes connections on to one server, until they are cut."""

    def __init__(self, server: str) -> None:
        self._host, _, port = server.partition(":")
        self._port = int(port)
        self._writers: list[asyncio.StreamWriter] = []
        self._is_cut = False
        self.address = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listener.close()
            self.cut()

    def cut(self) -> None:
        """End all connections, and accept none."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self._is_cut = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, back]
        await asyncio.gather(_pass(reader, back), _pass(there, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.transport.abort()


async def _expire(session: KazooSession, proxies: Sequence[Proxy], servers: str) -> None:
    """End the session at the ensemble, as its timeout does.

    The client is cut off meanwhile: it could take its session back before the twin ends it.
    """
    twin = KazooClient(servers, client_id=session._client.client_id)
    for proxy in proxies:
        proxy.cut()
    await asyncio.to_thread(twin.start)
    await asyncio.to_thread(twin.stop)
    twin.close()
    for proxy in proxies:
        proxy.mend()


async def _effects(
    session: ZooKeeperSession, other: ZooKeeperSession, disturb: Callable[[], Awaitable[Any]]
) -> dict[str, object]:
    """Return the state of a session and of its nodes after an event."""
    root, notes = f"/events-{secrets.token_hex(8)}", list[int]()
    await session.open(lambda: notes.append(session.session_id))
    await other.open(lambda: None)
    assert await session.write(Create(root), Create(f"{root}/mine", ephemeral=True)) is None
    assert await session.write(Put(root, b"newest")) is None
    before, begun = session.session_id, len(notes)
    await disturb()
    await until(lambda: len(notes) >= begun + 2)
    read = await until(lambda: session.get(root), passing=lambda _: True)
    after = session.session_id
    barrier = await other.write(Put(root, b"barrier"))
    mine = await other.get(f"{root}/mine")
    changed = asyncio.Event()
    await session.write(Put(root, b"again"))
    await session.get(root, changed.set)
    await other.write(Put(root, b"last"))
    async with asyncio.timeout(_PATIENCE_S):
        await changed.wait()
    found: dict[str, object] = {
        "is the same session": after == before,
        "has its ephemeral node": mine is not None and mine.owner == before,
        "knows its newest write": read.data == b"newest",
        "others can write": barrier is None,
    }
    await session.close()
    await other.close()
    return found


async def _of_simulated(event: str) -> dict[str, object]:
    ensemble = SimulatedEnsemble(SeededRandom(1))
    session = ensemble.session()

    async def disturb() -> None:
        SimulatedSession.lose_connection(session) if event == "lost" else session.expire()

    return await _effects(session, ensemble.session(), disturb)


async def _of_real(event: str, version: str) -> dict[str, object]:
    server = zookeeper_ensemble.shared(version).servers[0]
    async with Proxy(server).running() as proxy:
        session = KazooSession((proxy.address,), _TIMEOUT_S)

        async def disturb() -> None:
            if event == "lost":
                proxy.cut()
                proxy.mend()
            else:
                await _expire(session, [proxy], server)

        return await _effects(session, KazooSession((server,), _TIMEOUT_S), disturb)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("event", ["lost", "expired"])
def test_an_event_has_the_same_effects_on_a_simulated_session(event: str, version: str) -> None:
    async def scenario() -> None:
        simulated, real = await _of_simulated(event), await _of_real(event, version)
        assert simulated == real
        assert real["is the same session"] is (event == "lost")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_after_an_expiry_a_store_reads_no_older_state(version: str) -> None:
    """kazoo forgets the newest transaction that it has seen: a server that lags could answer."""

    async def scenario() -> None:
        servers = zookeeper_ensemble.shared(version).servers
        async with contextlib.AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(Proxy(each).running()) for each in servers]
            session = KazooSession(tuple(each.address for each in proxies), _TIMEOUT_S)
            seen = list[int]()
            store = _store(session, f"/newest-{secrets.token_hex(8)}")
            await store.open(create=True)
            session._client.add_listener(lambda state: seen.append(session._client.last_zxid))
            await store.register_broker(1, b"n" * 16)
            for number in range(3):
                epoch = (await store.elect()).epoch
                batch = MetadataBatch(b"w" * 16, number + 1, epoch, b"[]\n")
                assert (await store.append(batch, number)).outcome is EntryOutcome.DONE
                seen.clear()
                await _expire(session, proxies, ",".join(servers))
                await until(lambda: 0 in seen)
                assert len((await store.read(0)).entries) == number + 1
            await store.close()

    asyncio.run(scenario())


def _store(session: KazooSession, root: str) -> ZooKeeperStore:
    return ZooKeeperStore(
        session, root, MemoryMarks(), SystemClock(), SystemRandom(), session_timeout_s=_TIMEOUT_S
    )


def test_only_a_silence_of_a_session_timeout_makes_it_forget_the_newest_transaction() -> None:
    """An ensemble that has lost transactions would otherwise refuse the broker for ever."""

    async def scenario() -> None:
        server = zookeeper_ensemble.shared().servers[0]
        async with Proxy(server).running() as proxy:
            session = KazooSession((proxy.address,), _TIMEOUT_S)
            await session.open(lambda: None)
            assert await session.write(Create(f"/silence-{secrets.token_hex(8)}")) is None
            newest = session._client.last_zxid
            proxy.cut()
            await until(lambda: session._silence is not None)
            proxy.mend()
            await until(lambda: session._silence is None)
            assert session._client.last_zxid >= newest
            proxy.cut()
            await until(lambda: session._client.last_zxid == 0)
            proxy.mend()
            await until(lambda: session._client.connected)
            await session.close()

    asyncio.run(scenario())


def test_a_broker_whose_loop_hangs_is_dead_although_a_thread_keeps_its_ephemeral_node() -> None:
    root, servers = f"/hangs-{secrets.token_hex(8)}", zookeeper_ensemble.shared().servers
    registered, hang, is_over = (threading.Event() for _ in range(3))
    incarnation = b"h" * 16

    def store() -> tuple[ZooKeeperStore, KazooSession]:
        session = KazooSession(servers, _TIMEOUT_S)
        return _store(session, root), session

    async def hanging() -> None:
        made, _ = store()
        await made.open(create=True)
        await made.register_broker(1, incarnation)
        registered.set()
        hang.wait()  # here, not in a thread: the loop hangs
        await asyncio.to_thread(is_over.wait)
        await made.close()

    async def watching() -> None:
        made, session = store()
        await asyncio.to_thread(registered.wait)
        await made.open(create=False)
        await _until_live(made, {1: incarnation})
        await _until_live(made, {})
        node = await session.get(f"{root}/brokers/1")
        assert node is not None, "kazoo's thread keeps it"
        hang.set()
        await _until_live(made, {1: incarnation})
        is_over.set()
        await made.close()

    thread = threading.Thread(target=lambda: asyncio.run(hanging()), daemon=True)
    thread.start()
    try:
        asyncio.run(watching())
    finally:
        hang.set()
        is_over.set()
        thread.join()


async def _until_live(store: ZooKeeperStore, wanted: dict[int, bytes]) -> None:
    async def are_live() -> bool:
        return await store.live_brokers() == wanted

    await until(are_live, what=f"live brokers {wanted}", every_s=0.1)
