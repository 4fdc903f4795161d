"""The live brokers: ephemeral nodes behind heartbeats from the event loop.

kazoo's thread keeps a session, and so an ephemeral node, alive while the event loop hangs. Each
broker therefore raises the version of a second node with each heartbeat. A reader considers a
broker dead if the version has not changed for the session timeout. The reader compares with its
own clock, and gives every broker a full timeout after a pause of its own.

The second node is named after the process: a heartbeat that arrives late, in a new session, cannot
reach the registration of another process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NamedTuple

from lakelog.metadata.errors import BrokerIdInUse
from lakelog.metadata.store.zookeeper import session as zk
from lakelog.metadata.store.zookeeper.layout import Layout


class _Sign(NamedTuple):
    """The last heartbeat of a broker, and when this handle saw it first.

    Versions begin again in each session of the broker.
    """

    session: int
    version: int
    seen_s: float


class _Registration(NamedTuple):
    broker_id: int
    incarnation_id: bytes


class Brokers:
    """The registration of this broker, and the live brokers as this handle sees them."""

    def __init__(
        self,
        session: zk.ZooKeeperSession,
        layout: Layout,
        monotonic: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._session = session
        self._layout = layout
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self._mine: _Registration | None = None
        self._signs: dict[bytes, _Sign] = {}
        self._looked_s = monotonic()
        self._live: dict[int, bytes] = {}
        self.changes = 0
        """The number of changes of the live brokers that this handle has seen."""

    @property
    def registered(self) -> _Registration:
        assert self._mine is not None, "the broker is registered"
        return self._mine

    async def register(self, broker_id: int, incarnation_id: bytes) -> None:
        """Register, once the session of an earlier process with this id has ended.

        Raises `BrokerIdInUse` if it sends heartbeats or does not end.
        """
        mine = _Registration(broker_id, incarnation_id)
        path, changed = self._layout.broker(broker_id), asyncio.Event()
        deadline_s = self._monotonic() + 2 * self._timeout_s
        earlier: tuple[bytes, int] | None = None
        while not await self._claim(mine):
            changed.clear()
            node = await self._session.get(path, changed.set)
            if node is None:
                continue
            beat = await self._session.get(self._layout.heartbeat(node.data), changed.set)
            sign = (node.data, -1 if beat is None else beat.version)
            left_s = deadline_s - self._monotonic()
            lives = earlier is not None and earlier[0] == sign[0] and earlier[1] < sign[1]
            if lives:
                raise BrokerIdInUse(
                    f"another process runs broker id {broker_id}: it has {path}; "
                    "start each broker with a --node-id of its own"
                )
            if left_s <= 0:
                raise BrokerIdInUse(
                    f"the session of another process of broker id {broker_id} has not ended after "
                    f"{2 * self._timeout_s:g} s, although it sends no heartbeat: stop that process "
                    "if it hangs; ZooKeeper ends no session before 2 of its ticks, so "
                    "broker.session.timeout.ms must not be less than 2 tickTime"
                )
            earlier = sign
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await changed.wait()
        self._mine = mine

    async def restore(self) -> None:
        """Register again after a lost session. Raises `BrokerIdInUse`."""
        while self._mine is not None and not await self._claim(self._mine):
            path = self._layout.broker(self._mine.broker_id)
            node = await self._session.get(path)
            # It may be gone or this process's own: another broker that reported this process as
            # ended has removed it meanwhile.
            if node is not None and node.data != self._mine.incarnation_id:
                raise BrokerIdInUse(f"another process has taken this broker's id: it has {path}")

    async def beat(self) -> bool:
        """Send a heartbeat; return False if this broker has to register again."""
        if self._mine is None:
            return True
        put = zk.Put(self._layout.heartbeat(self._mine.incarnation_id), b"")
        return await zk.write_repeatable(self._session, put) is None

    async def end(self, broker_id: int, incarnation_id: bytes) -> None:
        """Remove a process that has ended, unless its session has ended already.

        The heartbeat is of this process alone, so another process with this id is not removed.
        """
        beat = self._layout.heartbeat(incarnation_id)
        await zk.write_repeatable(
            self._session, zk.Delete(beat), zk.Delete(self._layout.broker(broker_id))
        )

    async def live(self, on_change: zk.Notify | None = None) -> dict[int, bytes]:
        """Return the incarnation ids of the live brokers by id."""
        names = await self._session.children(self._layout.brokers, on_change) or []
        broker_ids = sorted(int(name) for name in names if name.isdecimal())
        nodes = await zk.get_all(self._session, map(self._layout.broker, broker_ids))
        registered = {
            broker_id: node.data
            for broker_id, node in zip(broker_ids, nodes, strict=True)
            if node is not None
        }
        beats = await zk.get_all(self._session, map(self._layout.heartbeat, registered.values()))
        now_s = self._monotonic()
        if now_s - self._looked_s > self._timeout_s / 2:
            self._signs.clear()
        self._looked_s = now_s
        signs = {
            incarnation_id: self._sign(incarnation_id, beat, now_s)
            for incarnation_id, beat in zip(registered.values(), beats, strict=True)
        }
        self._signs = signs
        live = {
            broker_id: incarnation_id
            for broker_id, incarnation_id in registered.items()
            if now_s - signs[incarnation_id].seen_s < self._timeout_s
        }
        if live != self._live:
            self._live = live
            self.changes += 1
        return live

    async def beating(self, within_s: float) -> dict[int, bytes]:
        """Return the live brokers whose last heartbeat this handle saw first within `within_s`."""
        live, now_s = await self.live(), self._monotonic()
        return {
            broker_id: incarnation_id
            for broker_id, incarnation_id in live.items()
            if now_s - self._signs[incarnation_id].seen_s < within_s
        }

    def _sign(self, incarnation_id: bytes, beat: zk.Node | None, now_s: float) -> _Sign:
        old = self._signs.get(incarnation_id)
        if beat is None:
            return old or _Sign(0, -1, now_s)
        if old is None or old.session != beat.owner or old.version < beat.version:
            return _Sign(beat.owner, beat.version, now_s)
        return old

    async def _claim(self, mine: _Registration) -> bool:
        """Return whether the node is this process's now; replace one of its earlier sessions."""
        path, beat = (
            self._layout.broker(mine.broker_id),
            self._layout.heartbeat(mine.incarnation_id),
        )
        create = (
            zk.Create(path, mine.incarnation_id, ephemeral=True),
            zk.Create(beat, ephemeral=True),
        )
        if await zk.write_repeatable(self._session, *create) is None:
            return True
        node = await self._session.get(path)
        if node is None or node.data != mine.incarnation_id:
            return False
        if node.owner == self._session.session_id:
            return True
        delete = (zk.Delete(path), zk.Delete(beat))
        return await zk.write_repeatable(self._session, *delete, *create) is None
