"""A `Session` over kazoo, whose threads report to the event loop.

kazoo waits a whole session timeout for one TCP connection and its handshake, so that one server
behind a black hole could expire the session: both are capped. After an expiry kazoo opens a new
session by itself. A transaction does not raise: it returns exceptions as its items.

A server refuses a client that has seen a newer transaction than its own. After a loss of data of
the whole ensemble kazoo would try for ever, and no broker would learn of the loss. After one
session timeout without a connection the session therefore forgets its newest transaction: each new
connection is verified anyway (`store.py`).

kazoo's own TLS trusts the host's authorities beside the given one, and reports no reason of a
failed connection. The handler therefore wraps the sockets itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from lakelog.base.events import event
from lakelog.metadata.errors import MetadataDenied, MetadataUnavailable
from lakelog.metadata.store.zookeeper import session as zk
from lakelog.metadata.store.zookeeper.address import Security, obstacle_of, silence_of

T = TypeVar("T")

_ATTEMPTS_PER_TIMEOUT = 9
_RECONNECT_DELAY_S_MAX = 0.5
_NO_SECURITY = Security()
_REASONS = {
    NodeExistsError: zk.Reason.EXISTS,
    NoNodeError: zk.Reason.MISSING,
    BadVersionError: zk.Reason.VERSION,
}
_logger = logging.getLogger(__name__)
_library_logger = _logger.getChild("library")
_library_logger.setLevel(logging.ERROR)


class _CappedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Waits at most `cap_s` for a server until the connection is established.

    Attributes:
        obstacles: why no session began, by server.
    """

    def __init__(self, cap_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._cap_s = cap_s
        self._tls = tls
        self.connected = False
        self.obstacles: dict[str, str] = {}

    def create_connection(
        self, address: tuple[str, int], *, hostname: str, timeout: float, **_: Any
    ) -> Any:
        host, timeout = f"{hostname}:{address[1]}", min(timeout, self._cap_s)
        try:
            connection = super().create_connection(address, timeout=timeout)
            if self._tls is not None:
                connection.settimeout(timeout)
                connection = self._tls.wrap_socket(connection, server_hostname=hostname)
        except TimeoutError as error:  # which says less than the reason of an earlier attempt
            self.obstacles.setdefault(host, obstacle_of(error, host))
            raise
        except OSError as error:
            self.obstacles[host] = obstacle_of(error, host)
            raise
        self.obstacles[host] = silence_of(host, has_tls=self._tls is not None)
        return connection

    def select(self, *args: Any, **kwargs: Any) -> Any:
        if not self.connected and len(args) > 3 and args[3] is not None:
            args = (*args[:3], min(args[3], self._cap_s))
        return super().select(*args, **kwargs)


class KazooSession:
    """One kazoo client. A request that began on another connection is not answered."""

    def __init__(
        self,
        servers: tuple[str, ...],
        session_timeout_s: float,
        security: Security = _NO_SECURITY,
    ) -> None:
        """Raises `ValueError` for a file of `security` that cannot be used."""
        tls = None if security.tls is None else security.tls.context()
        self._timeout_s = session_timeout_s
        self._handler = _CappedHandler(session_timeout_s / _ATTEMPTS_PER_TIMEOUT, tls)
        self._servers = ",".join(servers)
        self._client = KazooClient(
            self._servers,
            timeout=session_timeout_s,
            handler=self._handler,
            auth_data=None if security.digest is None else [("digest", security.digest)],
            default_acl=CREATOR_ALL_ACL if security.restricts else None,
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

    async def open(self, on_connection: zk.Notify) -> None:
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
            reasons = "; ".join(self._handler.obstacles.values()) or "no address is known"
            raise MetadataUnavailable(
                f"no ZooKeeper server of {self._servers} answers: {reasons}"
            ) from None

    async def get(self, path: str, on_change: zk.Notify | None = None) -> zk.Node | None:
        answer = await self._read(self._client.get_async, path, on_change)
        if answer is None:
            return None
        data, stat = answer
        return zk.Node(data, stat.version, stat.ephemeralOwner)

    async def children(self, path: str, on_change: zk.Notify | None = None) -> list[str] | None:
        names: list[str] | None = await self._read(self._client.get_children_async, path, on_change)
        return names

    async def write(self, *operations: zk.Operation) -> zk.Refusal | None:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case zk.Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                case zk.Put(path, data, version):
                    transaction.set_data(path, data, version)
                case zk.Delete(path):
                    transaction.delete(path)
                case zk.Check(path, version):
                    transaction.check(path, version)
        try:
            items = await self._answer(transaction.commit_async)
            _check_access(items, operations)
            return refusal_of(items)
        except AuthFailedError as error:
            raise _denied("its nodes") from error
        except (KazooException, TimeoutError) as error:
            raise zk.OutcomeUnknown(f"ZooKeeper: {error!r} during a write") from error

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

    async def _read(
        self, request: Callable[..., Any], path: str, on_change: zk.Notify | None
    ) -> Any:
        watch = None if on_change is None else lambda _event: self._on_loop(on_change)
        try:
            return await self._answer(lambda: request(path, watch=watch))
        except NoNodeError:
            return None
        except (NoAuthError, AuthFailedError) as error:
            raise _denied(path) from error
        except (KazooException, TimeoutError) as error:
            raise zk.Disconnected(f"ZooKeeper: {error!r} during a read") from error

    async def _answer(self, submit: Callable[[], Any]) -> Any:
        """Return the answer. Raises `TimeoutError` if it is of another connection, or late."""
        connections, answered = self._connections, self._loop.create_future()

        def complete(result: Any) -> None:
            if answered.done():
                return
            if result.exception is not None:
                answered.set_exception(result.exception)
            else:
                answered.set_result(result.value)

        submit().rawlink(lambda result: self._on_loop(complete, result))
        async with asyncio.timeout(self._timeout_s):
            answer = await answered
        if connections != self._connections:
            raise TimeoutError("the connection was lost")
        return answer

    def _on_loop(self, callback: Callable[..., object], *args: object) -> None:
        """Schedule a call from a thread of kazoo, which may outlive the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)


def _check_access(items: list[Any], operations: tuple[zk.Operation, ...]) -> None:
    for item, operation in zip(items, operations, strict=True):
        if isinstance(item, NoAuthError):
            raise _denied(operation.path)


def _denied(path: str) -> MetadataDenied:
    return MetadataDenied(
        f"ZooKeeper denies access to {path}: check the user and password in "
        "lakelog.zookeeper.digest.file, the client certificate, and the ACLs of the nodes"
    )


def refusal_of(items: list[Any]) -> zk.Refusal | None:
    """Return the first operation that failed; the items beside it say only that they follow it."""
    for index, item in enumerate(items):
        if isinstance(item, Exception) and not isinstance(
            item, RolledBackError | RuntimeInconsistency
        ):
            return zk.Refusal(index, _REASONS.get(type(item), zk.Reason.OTHER))
    assert not any(isinstance(item, Exception) for item in items)
    return None
