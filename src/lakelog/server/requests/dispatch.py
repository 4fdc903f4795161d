"""From a frame to a handler and back: versions, headers, decoding, errors, the order of replies.

A handler is a function of (context, request). It returns the response, or None for a request that
has no response, or a coroutine or a future of the response, or `DEFERRED` if it will call
`context.reply`. Everything common to all APIs is here, so that a handler is about its API alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from struct import Struct
from types import CoroutineType
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import Api
from lakelog.runtime.api import File, Tasks
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.listeners import ConnectionRegistry
from lakelog.server.connections.reply import Reply
from lakelog.server.connections.request_budget import UNIT_S
from lakelog.server.connections.request_sink import (
    ANSWERED,
    WAITING,
    CachedRequest,
    ProtocolViolation,
)
from lakelog.server.requests.admission import (
    Admission,
    Admitted,
    Close,
    Metered,
    RefusedRequest,
    Verdict,
    refuse,
)
from lakelog.server.requests.context import DEFERRED, Context
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.server.requests.waiting import WaitingRequests
from lakelog.wire.codec import decode_prefix
from lakelog.wire.framing import decode_request_header
from lakelog.wire.primitives import WireError
from lakelog.wire.schema import Message
from lakelog.wire.shapes import Versions

logger = logging.getLogger(__name__)

_PRODUCE = 0
_API_VERSIONS = 18
_KEY_AND_VERSION = Struct(">hh")


Handler = Callable[[Context, Any], Any]
RequestCacher = Callable[[CachedRequest | None, Context, Any], CachedRequest | None]
Refuser = Callable[[Context, Any, ErrorCode], Any]


def _note_nowhere(_: float) -> None:
    """Ignore a duration: the route has no dispatcher yet."""


@dataclass(slots=True)
class Route:
    """One API as this broker serves it; `ServedApi` describes the options."""

    api: Api
    handler: Handler
    versions: InitVar[Versions | None] = None
    in_place: bool = False
    cache_request: RequestCacher | None = None
    refuse: Refuser = refuse
    counts_errors: bool = False
    note: Callable[[float], None] = _note_nowhere
    min_version: int = field(init=False)
    max_version: int = field(init=False)

    def __post_init__(self, versions: Versions | None) -> None:
        served = versions or self.api.versions
        self.min_version, self.max_version = served.lowest, served.highest


_Received = tuple[Route, Context, Message, Verdict]
"""A decoded request, and the verdict of admission control on it."""


class Dispatcher:
    """The request sink of every connection."""

    def __init__(
        self,
        routes: dict[int, Route],
        unsupported_api_versions: Handler,
        connections: ConnectionRegistry,
        tasks: Tasks,
        requests: RequestMetrics,
        admission: Admission,
        note_unreadable: Callable[[File, OSError], object],
    ) -> None:
        """note_unreadable: called with a file that could not be read for a response."""
        self._note_unreadable = note_unreadable
        self._routes = routes
        for route in routes.values():
            route.note = requests.durations(route.api).note
        self._unsupported_api_versions = unsupported_api_versions
        self._requests = requests
        self._admission = admission
        self._tasks = tasks
        self.connections = connections
        self._closings = connections.closings
        self.waiting = WaitingRequests(connections.budget.waiting, self._closings, requests)

    def is_pipelined(self, api_key: int) -> bool:
        """Return whether the API is Produce.

        Producers keep several requests in flight (`max.in.flight.requests.per.connection`), so a
        batch is appended while earlier ones wait for their acknowledgement. The responses stay in
        order.
        """
        return api_key == _PRODUCE

    def on_violation(self, connection: Connection, violation: ProtocolViolation) -> None:
        """Close the connection and log the violation."""
        self._closings.closing(connection.session.peer_name, violation)
        connection.close()

    def on_failure(self, connection: Connection, what: str, error: Exception) -> None:
        """Close the connection and log `error` with its traceback."""
        self._closings.bug(what, connection.session.peer_name, error)
        connection.close()

    def on_unreadable(self, file: File, error: OSError) -> None:
        """Take the partition offline whose log has this file."""
        self._note_unreadable(file, error)

    def on_close(self, connection: Connection, abandoned: list[Reply]) -> None:
        """Release the memory of abandoned requests, and stop counting the connection."""
        for reply in abandoned:
            assert isinstance(reply, Context)
            self.waiting.remove(reply)
        self.connections.discard(connection)

    def on_request(
        self, connection: Connection, view: memoryview, start: int, end: int, most: int
    ) -> tuple[int, int]:
        """Answer the request from the cached one, or decode it and run its handler.

        Raises `ProtocolViolation` if no route serves the API in this version, if admission control
        closes the connection, for a malformed request, and for a bug of a handler, which is logged.
        """
        requests = self._requests
        begin = connection.last_active = requests.monotonic()
        if connection.admitted != self._admission.generation:
            self._admission.renew(connection)
        cached_request = connection.cached_request
        if cached_request is not None:
            try:
                # While all requests are watched, each is answered by itself: a run of requests
                # would be one note.
                if requests.noteworthy_s <= 0:
                    most = 1
                outcome, count, following = cached_request.answer(view, start, end, most)
            except Exception as error:
                raise self._bug(cached_request.api, connection, error) from error
            if outcome is ANSWERED:
                took = requests.monotonic() - begin
                cached_request.note(took)
                if count > 1:
                    for _ in range(count - 1):
                        cached_request.note(took)
                if took > requests.noteworthy_s:
                    peer, size = connection.session.peer_name, following - start
                    requests.on_noteworthy(cached_request.api, cached_request.key, peer, took, size)
                return count, following
            if outcome is WAITING:
                return count, following
        self._on_other_request(connection, view, start, end, begin)
        return 1, end

    def _on_other_request(
        self, connection: Connection, view: memoryview, start: int, end: int, begin: float
    ) -> None:
        """Decode and handle a request that repeats no earlier one; it was taken up at `begin`.

        A request that waits is counted when its reply is complete.
        """
        route, context, request, verdict = self._handle(connection, view, start, end)
        requests, size = self._requests, end - start
        took = requests.monotonic() - begin
        # The size of a request does not show its cost: a Fetch may name thousands of partitions.
        if took > UNIT_S:
            self.connections.iterations.left -= int(took / UNIT_S)
        if context.parts is None:
            context.begun, context.size_bytes = begin, size
            self.waiting.add(context, request)
        else:
            route.note(took)
            if took > requests.noteworthy_s:
                peer = connection.session.peer_name
                requests.on_noteworthy(route.api, context, peer, took, size)
        # A metered request is never cached, because each repetition must be charged. A request
        # that admission control or its handler refused must be refused each time.
        if (
            route.cache_request is not None
            and isinstance(verdict, Admitted)
            and not context.was_rejected
        ):
            self._cache_request(route.cache_request, context, request)

    def _handle(self, connection: Connection, view: memoryview, start: int, end: int) -> _Received:
        """Decode a request, run its handler, and reply unless the handler does that later."""
        route, context, request, verdict = received = self._receive(connection, view, start, end)
        connection.expect(context)
        try:
            if isinstance(verdict, RefusedRequest):
                response = route.refuse(context, request, verdict.code)
            else:
                if isinstance(verdict, Metered) and verdict.throttle_ms:
                    # Before the handler runs: a throttled request is still handled and answered
                    # (KIP-219), and only requests after it wait.
                    context.throttle_ms = verdict.throttle_ms
                    connection.mute(verdict.throttle_ms / 1000)
                response = route.handler(context, request)
            if isinstance(response, Message) or response is None:
                if response is not None and not route.counts_errors:
                    self._requests.count_errors(route.api, response)
                context.reply(response)
            elif response is not DEFERRED:
                self._answer_later(route, context, response)
        except ProtocolViolation:
            raise
        except Exception as error:
            raise self._bug(route.api, connection, error) from error
        return received

    def _receive(self, connection: Connection, view: memoryview, start: int, end: int) -> _Received:
        """Decode a request, and have admission control decide about it."""
        key, version = _KEY_AND_VERSION.unpack_from(view, start)
        route = self._route(key, version)
        try:
            context, body = _read_header(route.api, version, connection, view, start, end)
            verdict = self._admission.admit(context, end - start)
            if isinstance(verdict, Close):
                raise ProtocolViolation(verdict.reason)
            if not route.min_version <= version <= route.max_version:
                return self._unknown_api_versions(route, context, verdict)
            if not route.in_place:
                # The handler may keep fields beyond this loop iteration; the receive buffer is used
                # again.
                view, body, end = memoryview(bytes(view[body:end])), 0, end - body
            # Bytes after the message are ignored, as in Apache Kafka: librdkafka 2.16 sends three
            # of them after a Metadata request for all topics.
            request, _ = decode_prefix(route.api.request, view, version, body, end)
        except ProtocolViolation:
            raise
        except WireError as error:
            raise ProtocolViolation(f"{route.api.name} v{version}: {error}") from error
        except Exception as error:
            raise self._bug(route.api, connection, error) from error
        return route, context, request, verdict

    def _route(self, key: int, version: int) -> Route:
        """Return the route of a request; ApiVersions is answered in unknown versions, too."""
        route = self._routes.get(key)
        if route is None:
            raise ProtocolViolation(f"API key {key} is not served")
        if not route.min_version <= version <= route.max_version and key != _API_VERSIONS:
            raise ProtocolViolation(
                f"{route.api.name} version {version} is not served "
                f"({route.min_version} to {route.max_version} are)"
            )
        return route

    def _cache_request(
        self, cache_request: RequestCacher, context: Context, request: Message
    ) -> None:
        connection = context.connection
        if connection.closed:
            return
        try:
            connection.cached_request = cache_request(connection.cached_request, context, request)
        except Exception as error:
            raise self._bug(context.api, connection, error) from error

    def _unknown_api_versions(self, route: Route, context: Context, verdict: Verdict) -> _Received:
        """Have ApiVersions in an unknown version answered with version 0 (KIP-511).

        The body is not read: its format is unknown.
        """
        context.version = 0
        unsupported = Route(route.api, self._unsupported_api_versions, refuse=route.refuse)
        return unsupported, context, route.api.request(), verdict

    def _answer_later(self, route: Route, context: Context, response: Any) -> None:
        """Reply when a coroutine or a future of the response is done."""
        if type(response) is CoroutineType:
            handling = self._tasks.spawn(response, name=route.api.name)
            handling.add_done_callback(lambda done: self._on_handled(route, context, done))
        elif response.done():
            self._on_done(route, context, response)
        else:
            context.on_abandon = response.cancel
            response.add_done_callback(lambda done: self._on_done(route, context, done))

    def _on_done(self, route: Route, context: Context, response: asyncio.Future[Any]) -> None:
        if response.cancelled():
            return
        error = response.exception()
        try:
            if error is not None:
                raise error
            result = response.result()
            if result is not None and not route.counts_errors:
                self._requests.count_errors(route.api, result)
            context.reply(result)
        except Exception as failure:  # noqa: BLE001 - it ends one connection, and nothing else
            self._fail(context, failure)

    def _on_handled(self, route: Route, context: Context, done: asyncio.Task[Any]) -> None:
        """Answer after a handler's coroutine has ended; with `DEFERRED` the reply comes later."""
        if done.cancelled():
            self.waiting.remove(context)
            return
        if done.exception() is None and done.result() is DEFERRED:
            return
        self._on_done(route, context, done)
        self.waiting.remove(context)

    def _fail(self, context: Context, error: BaseException) -> None:
        """Close the connection of a request whose handler failed after it had returned."""
        if not isinstance(error, ProtocolViolation):
            error = self._bug(context.api, context.connection, error)
        self.on_violation(context.connection, error)
        if context.parts is None:
            context.complete([])

    def _bug(self, api: Api, connection: Connection, error: BaseException) -> ProtocolViolation:
        self._closings.bug(api.name, connection.session.peer_name, error)
        return ProtocolViolation(f"{api.name} failed: {error!r}")


def _read_header(
    api: Api, version: int, connection: Connection, view: memoryview, start: int, end: int
) -> tuple[Context, int]:
    """Return the request's context from its header, and the position of its body."""
    correlation_id, client_id, body = decode_request_header(
        view, start, end, flexible=version >= api.flexible_from
    )
    return Context(connection, api, version, correlation_id, client_id), body
