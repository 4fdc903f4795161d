"""A `Session` over kazoo, whose threads report to the event loop.

kazoo waits a whole session timeout for one TCP connection and its handshake, so that one server
behind a black hole could expire the session: both are capped. After an expiry kazoo opens a new
session by itself. A transaction does not raise: it returns exceptions as its items.

A server refuses a client that has seen a newer transaction than its own. After a loss of data of
the whole ensemble kazoo would try for ever, and no broker would learn of the loss. After one
session timeout without a connection the session therefore forgets its newest transaction: each new
connection is verified anyway (`store.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from lakelog.base.events import event
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

T = TypeVar("T")

_ATTEMPTS_PER_TIMEOUT = 9
_RECONNECT_DELAY_S_MAX = 0.5
_REASONS = {
    NodeExistsError: Reason.EXISTS,
    NoNodeError: Reason.MISSING,
    BadVersionError: Reason.VERSION,
}
_logger = logging.getLogger(__name__)
_library_logger = _logger.getChild("library")
_library_logger.setLevel(logging.ERROR)


class _CappedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Waits at most `cap_s` for a server until the connection is established."""

    def __init__(self, cap_s: float) -> None:
        super().__init__()
        self._cap_s = cap_s
        self.connected = False

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout, self._cap_s), **kwargs)

    def select(self, *args: Any, **kwargs: Any) -> Any:
        if not self.connected and len(args) > 3 and args[3] is not None:
            args = (*args[:3], min(args[3], self._cap_s))
        return super().select(*args, **kwargs)


class KazooSession:
    """One kazoo client. A request that began on another connection is not answered."""

    def __init__(self, servers: tuple[str, ...], session_timeout_s: float) -> None:
        self._timeout_s = session_timeout_s
        self._handler = _CappedHandler(session_timeout_s / _ATTEMPTS_PER_TIMEOUT)
        self._servers = ",".join(servers)
        self._client = KazooClient(
            self._servers,
            timeout=session_timeout_s,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                max_delay=_RECONNECT_DELAY_S_MAX,
                sleep_func=self._handler.sleep_func,
            ),
            logger=_library_logger,
        )
        self._connections = 0
        self._closing = False
        self._silence: asyncio.TimerHandle | None = None

    @property
    def session_id(self) -> int:
        client_id = self._client.client_id
        return 0 if client_id is None else int(client_id[0])

    async def open(self, on_connection: Notify) -> None:
        self._loop = asyncio.get_running_loop()
        connected = asyncio.Event()

        def note(state: str) -> None:
            self._connections += 1
            self._watch_silence(is_connected=state == KazooState.CONNECTED)
            if state == KazooState.CONNECTED:
                connected.set()
                _logger.info("connected to ZooKeeper", extra=event("metadata_connected"))
            elif not self._closing:
                _logger.warning(
                    "connection to ZooKeeper: %s", state, extra=event("metadata_disconnected")
                )
            on_connection()

        def on_state(state: str) -> None:
            self._handler.connected = state == KazooState.CONNECTED
            self._on_loop(note, state)

        self._client.add_listener(on_state)
        self._client.start_async()
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                await connected.wait()
        except TimeoutError:
            await self.close()
            raise MetadataUnavailable(f"no ZooKeeper server of {self._servers} answers") from None

    async def get(self, path: str, on_change: Notify | None = None) -> Node | None:
        found = await self._read(self._client.get_async, path, on_change)
        if found is None:
            return None
        data, stat = found
        return Node(data, stat.version, stat.ephemeralOwner)

    async def children(self, path: str, on_change: Notify | None = None) -> list[str] | None:
        found: list[str] | None = await self._read(self._client.get_children_async, path, on_change)
        return found

    async def write(self, *operations: Operation) -> Refusal | None:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case Put(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path):
                    transaction.delete(path)
                case Check(path, version):
                    transaction.check(path, version)
        try:
            return refusal_of(await self._answer(transaction.commit_async))
        except (KazooException, TimeoutError) as error:
            raise OutcomeUnknown(f"ZooKeeper: {error!r} during a write") from error

    async def close(self) -> None:
        self._closing = True
        if self._silence is not None:
            self._silence.cancel()

        def stop() -> None:
            with contextlib.suppress(KazooException):
                self._client.stop()
            self._client.close()

        await asyncio.to_thread(stop)

    def _watch_silence(self, *, is_connected: bool) -> None:
        if is_connected and self._silence is not None:
            self._silence.cancel()
            self._silence = None
        elif not is_connected and self._silence is None:
            self._silence = self._loop.call_later(self._timeout_s, self._forget_newest)

    def _forget_newest(self) -> None:
        self._client.last_zxid = 0

    async def _read(self, request: Callable[..., Any], path: str, on_change: Notify | None) -> Any:
        watch = None if on_change is None else lambda _event: self._on_loop(on_change)
        try:
            return await self._answer(lambda: request(path, watch=watch))
        except NoNodeError:
            return None
        except (KazooException, TimeoutError) as error:
            raise Disconnected(f"ZooKeeper: {error!r} during a read") from error

    async def _answer(self, submit: Callable[[], Any]) -> Any:
        """Return the answer. Raises `TimeoutError` if it is of another connection, or late."""
        connections, answered = self._connections, self._loop.create_future()

        def settle(result: Any) -> None:
            if answered.done():
                return
            if result.exception is not None:
                answered.set_exception(result.exception)
            else:
                answered.set_result(result.value)

        submit().rawlink(lambda result: self._on_loop(settle, result))
        async with asyncio.timeout(self._timeout_s):
            answer = await answered
        if connections != self._connections:
            raise TimeoutError("the connection was lost")
        return answer

    def _on_loop(self, callback: Callable[..., object], *args: object) -> None:
        """Schedule a call from a thread of kazoo, which may outlive the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)


def refusal_of(items: list[Any]) -> Refusal | None:
    """Return the first operation that failed; the items beside it say only that they follow it."""
    for index, item in enumerate(items):
        if isinstance(item, Exception) and not isinstance(
            item, RolledBackError | RuntimeInconsistency
        ):
            return Refusal(index, _REASONS.get(type(item), Reason.OTHER))
    assert not any(isinstance(item, Exception) for item in items)
    return None
