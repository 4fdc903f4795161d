"""A ZooKeeper ensemble in memory, repeatable from a seed.

One list of transactions, and servers that apply it late: a session reads from its server, which may
lag behind the writes of other sessions. Sessions lose their connections and expire as the
percentages say, or when a test asks for it; a write that was under way then is dropped, done, or
done some iterations of the loop later. Delays are iterations of the loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import NamedTuple

from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.zookeeper.session import (
    Check,
    Create,
    Delete,
    Disconnected,
    Node,
    Notify,
    Operation,
    OutcomeUnknown,
    Put,
    Reason,
    Refusal,
)
from lakelog.runtime.api import Random

_ROOT = Node(b"", 0, 0)
Tree = dict[str, Node]


class Faults(NamedTuple):
    """The percentages of requests that meet a fault, and the longest delays in turns."""

    loss_percent: int = 0
    expiry_percent: int = 0
    delay_iterations_max: int = 3
    lag_iterations_max: int = 10


class _Transaction(NamedTuple):
    session_id: int
    operations: tuple[Operation, ...]


class _Server:
    """A replica of the tree, and the watches of the sessions that are connected to it."""

    def __init__(self, log: list[_Transaction]) -> None:
        self._log = log
        self.tree: Tree = {"/": _ROOT}
        self.applied = 0
        # In the order of their requests: a set of callbacks has another order in each process.
        self._data_watches: defaultdict[str, dict[Notify, None]] = defaultdict(dict)
        self._child_watches: defaultdict[str, dict[Notify, None]] = defaultdict(dict)

    def catch_up(self, end: int) -> None:
        for transaction in self._log[self.applied : end]:
            apply(self.tree, transaction.session_id, transaction.operations)
            self.applied += 1
            for operation in transaction.operations:
                self._report(operation)

    def restart(self) -> None:
        """Replay a log that was replaced."""
        self.tree, self.applied = {"/": _ROOT}, 0
        self.catch_up(len(self._log))

    def watch_data(self, path: str, notify: Notify) -> None:
        self._data_watches[path][notify] = None

    def watch_children(self, path: str, notify: Notify) -> None:
        self._child_watches[path][notify] = None

    def _report(self, operation: Operation) -> None:
        if isinstance(operation, Check):
            return
        watches = self._data_watches.pop(operation.path, {})
        if isinstance(operation, Delete):
            watches |= self._child_watches.pop(operation.path, {})
        if not isinstance(operation, Put):
            watches |= self._child_watches.pop(_parent(operation.path), {})
        for notify in watches:
            notify()


class SimulatedEnsemble:
    """Three servers by default."""

    def __init__(self, random: Random, faults: Faults | None = None, servers: int = 3) -> None:
        self.random = random
        self.faults = faults or Faults()
        self._log: list[_Transaction] = []
        self._leader = _Server(self._log)
        self._servers = [_Server(self._log) for _ in range(servers)]
        self._sessions = 0

    def session(self) -> SimulatedSession:
        return SimulatedSession(self)

    def new_session_id(self) -> int:
        self._sessions += 1
        return self._sessions

    def commit(self, session_id: int, operations: tuple[Operation, ...]) -> Refusal | None:
        """Carry out a transaction on the leader; the servers follow."""
        refusal = apply(self._leader.tree, session_id, operations)
        if refusal is None:
            self._log.append(_Transaction(session_id, operations))
            self._leader.applied = end = len(self._log)
            for server in self._servers:
                iterations = self.random.below(self.faults.lag_iterations_max + 1)
                after_iterations(iterations, partial(server.catch_up, end))
        return refusal

    def data(self, path: str) -> bytes:
        """Return the newest data of an existing node."""
        return self._leader.tree[path].data

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of a session."""
        tree = self._leader.tree
        owned = [path for path, node in tree.items() if node.owner == session_id]
        if owned:
            self.commit(session_id, tuple(Delete(path) for path in owned))

    def server(self, applied: int) -> _Server:
        """Return a server that has applied this many transactions."""
        server = self._servers[self.random.below(len(self._servers))]
        server.catch_up(applied)
        return server

    @property
    def committed(self) -> int:
        """The number of transactions so far."""
        return len(self._log)

    def restore(self, committed: int) -> None:
        """Forget all later transactions, as an ensemble that is restored from a backup."""
        del self._log[committed:]
        for server in (self._leader, *self._servers):
            server.restart()


class SimulatedSession:
    """A `Session`. Its requests are carried out one after the other."""

    def __init__(self, ensemble: SimulatedEnsemble) -> None:
        self._ensemble = ensemble
        self.session_id = 0
        self._order = asyncio.Lock()
        self._connected = asyncio.Event()
        self._connections = 0
        self._seen = 0
        self._closed = False

    async def open(self, on_connection: Notify) -> None:
        self._on_connection = on_connection
        self.session_id = self._ensemble.new_session_id()
        self._connect()

    async def get(self, path: str, on_change: Notify | None = None) -> Node | None:
        async with self._order:
            await self._reach_for_reading()
            node = self._server.tree.get(path)
            if node is not None and on_change is not None:
                self._server.watch_data(path, self._watch(on_change))
            return node

    async def children(self, path: str, on_change: Notify | None = None) -> list[str] | None:
        async with self._order:
            await self._reach_for_reading()
            if path not in self._server.tree:
                return None
            if on_change is not None:
                self._server.watch_children(path, self._watch(on_change))
            return children(self._server.tree, path)

    async def write(self, *operations: Operation) -> Refusal | None:
        async with self._order:
            await self._reach()
            if not self._meets_fault():
                return self._commit(operations)
            fate, session_id = self._ensemble.random.below(3), self.session_id
            if fate == 0:
                self._commit(operations)
            elif fate == 1 and not any(_is_ephemeral(operation) for operation in operations):
                iterations = self._ensemble.random.below(
                    2 * self._ensemble.faults.delay_iterations_max + 1
                )
                after_iterations(iterations, lambda: self._ensemble.commit(session_id, operations))
            self._fail()
            raise OutcomeUnknown("injected")

    async def close(self) -> None:
        if not self._closed and self.session_id:
            self._closed = True
            self._ensemble.end_session(self.session_id)
            self._connected.set()

    def lose_connection(self) -> None:
        """Lose the connection and its watches, and connect again some turns later."""
        if self._closed or not self._connected.is_set():
            return
        self._connected.clear()
        self._connections += 1
        self._on_connection()
        iterations = self._ensemble.random.below(self._ensemble.faults.delay_iterations_max + 1)
        after_iterations(iterations, self._connect)

    def expire(self) -> None:
        """Lose the session; the next one may read older states than this one has seen."""
        if self._closed:
            return
        self._ensemble.end_session(self.session_id)
        self.session_id = self._ensemble.new_session_id()
        self._seen = 0
        self.lose_connection()

    def _connect(self) -> None:
        if not self._closed:
            self._seen = min(self._seen, self._ensemble.committed)
            self._server = self._ensemble.server(self._seen)
            self._connected.set()
            self._connections += 1
            self._on_connection()

    def _commit(self, operations: tuple[Operation, ...]) -> Refusal | None:
        refusal = self._ensemble.commit(self.session_id, operations)
        self._seen = self._ensemble.committed
        self._server.catch_up(self._seen)
        return refusal

    def _watch(self, on_change: Notify) -> Notify:
        """Return a callback that ends with the connection."""
        connections = self._connections

        def notify() -> None:
            if connections == self._connections:
                on_change()

        return notify

    async def _reach_for_reading(self) -> None:
        await self._reach()
        if self._meets_fault():
            self._fail()
            raise Disconnected("injected")
        self._seen = max(self._seen, self._server.applied)

    async def _reach(self) -> None:
        """Wait for a connection and for some iterations of the loop."""
        for _ in range(self._ensemble.random.below(self._ensemble.faults.delay_iterations_max + 1)):
            await asyncio.sleep(0)
        await self._connected.wait()
        if self._closed:
            raise MetadataUnavailable("the session is closed")

    def _meets_fault(self) -> bool:
        faults = self._ensemble.faults
        percent = faults.loss_percent + faults.expiry_percent
        return self._ensemble.random.below(100) < percent

    def _fail(self) -> None:
        faults = self._ensemble.faults
        share = self._ensemble.random.below(faults.loss_percent + faults.expiry_percent)
        if share < faults.expiry_percent:
            self.expire()
        else:
            self.lose_connection()


def apply(tree: Tree, session_id: int, operations: tuple[Operation, ...]) -> Refusal | None:
    """Carry out all operations on a tree or none."""
    before = dict[str, Node | None]()
    for index, operation in enumerate(operations):
        reason = _reason_against(tree, operation)
        if reason is not None:
            for path, node in before.items():
                if node is None:
                    del tree[path]
                else:
                    tree[path] = node
            return Refusal(index, reason)
        before.setdefault(operation.path, tree.get(operation.path))
        _carry_out(tree, session_id, operation)
    return None


def children(tree: Tree, path: str) -> list[str]:
    """Return the names of the children of a node."""
    prefix = path.rstrip("/") + "/"
    return [
        name.removeprefix(prefix)
        for name in tree
        if name.startswith(prefix) and name != prefix and "/" not in name.removeprefix(prefix)
    ]


def after_iterations(iterations: int, action: Callable[[], object]) -> None:
    """Call `action` after this many turns of the running loop.

    The ensemble acts by itself: not as the simulated process whose request it carries out.
    """
    if iterations:
        loop = asyncio.get_running_loop()
        loop.call_soon(after_iterations, iterations - 1, action, context=Context())
    else:
        action()


def _reason_against(tree: Tree, operation: Operation) -> Reason | None:
    node = tree.get(operation.path)
    if isinstance(operation, Create):
        parent = tree.get(_parent(operation.path))
        if parent is None:
            return Reason.MISSING
        if node is not None:
            return Reason.EXISTS
        return Reason.OTHER if parent.owner else None
    if node is None:
        return Reason.MISSING
    if isinstance(operation, Delete):
        return Reason.OTHER if children(tree, operation.path) else None
    return None if operation.version in (-1, node.version) else Reason.VERSION


def _carry_out(tree: Tree, session_id: int, operation: Operation) -> None:
    if isinstance(operation, Create):
        owner = session_id if operation.ephemeral else 0
        tree[operation.path] = Node(operation.data, 0, owner)
    elif isinstance(operation, Put):
        node = tree[operation.path]
        tree[operation.path] = node._replace(data=operation.data, version=node.version + 1)
    elif isinstance(operation, Delete):
        del tree[operation.path]


def _is_ephemeral(operation: Operation) -> bool:
    return isinstance(operation, Create) and operation.ephemeral


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
