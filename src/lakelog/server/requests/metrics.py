"""Durations and errors of requests; slow requests in the log, and all requests for watchers.

A duration is the time from the turn of a request to its complete response. It includes the wait of
a fetch for records, of a join for other members, and of a commit for the log. It includes neither
the transfer through sockets nor the wait for other work of the loop, which is the loop's lag.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from lakelog.base.events import event
from lakelog.metrics import Durations
from lakelog.protocol.api import Api
from lakelog.protocol.registry import APIS
from lakelog.runtime.api import Clock
from lakelog.server.connections.request_sink import RequestHeader
from lakelog.server.log_limits import LogWindow, left_out_text, one_line
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Struct

logger = logging.getLogger(__name__)

_WAIT_FOR_OTHERS = frozenset({1, 11, 14})
"""Fetch, JoinGroup and SyncGroup, for which a long wait is normal."""


CLIENT_ID_CHARS_MAX = 255
"""Characters of a client id that are logged and shown; a client may send 32,767."""


class RequestNote(NamedTuple):
    """One request that was answered. `size_bytes` is the request's, without its length field.

    `client_id` is cut to `CLIENT_ID_CHARS_MAX`.
    """

    api: str
    version: int
    client_id: str
    peer: str
    duration_s: float
    size_bytes: int


Watcher = Callable[[RequestNote], object]


class RequestMetrics:
    """The metrics of one broker. `on_noteworthy` is called for durations above `noteworthy_s`."""

    __slots__ = (
        "_durations",
        "_slow_s",
        "_waits",
        "_watchers",
        "_window",
        "errors",
        "monotonic",
        "noteworthy_s",
    )

    def __init__(self, clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self.errors: Counter[tuple[str, int]] = Counter()
        """Error codes in responses, by API and code."""
        self._durations = {key: Durations() for key in APIS}
        self._waits = {key: Durations() for key in APIS}
        """Durations of requests that were not answered at once, and did not block the loop."""
        self._watchers: list[Watcher] = []
        self._window = LogWindow(clock)
        self._slow_s = self.noteworthy_s = math.inf

    def durations(self, api: Api) -> Durations:
        """Return the durations, in seconds, of an API's requests that were answered at once."""
        return self._durations[api.key]

    def seen(self) -> Iterator[tuple[str, list[Durations]]]:
        """Yield each requested API with two sets of durations in seconds, to be added up."""
        for key, durations in self._durations.items():
            parts = [durations, self._waits[key]]
            if any(part.count for part in parts):
                yield APIS[key].name, parts

    def fold(self) -> float:
        """Return the longest time, in seconds, for which one request blocked the loop.

        The time is since the last call. To be called often (see `Durations`).
        """
        for waits in self._waits.values():
            waits.fold()
        return max(durations.fold() for durations in self._durations.values())

    def log_slower_than(self, slow_ms: int) -> None:
        """Log requests that take more than `slow_ms` milliseconds; a negative value logs none."""
        self._slow_s = slow_ms / 1000 if slow_ms >= 0 else math.inf
        self._choose_noteworthy()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` with every request, until the returned function is called."""
        self._watchers.append(watcher)
        self._choose_noteworthy()

        def leave() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
                self._choose_noteworthy()

        return leave

    def _choose_noteworthy(self) -> None:
        self.noteworthy_s = -math.inf if self._watchers else self._slow_s

    def on_noteworthy(
        self, api: Api, header: RequestHeader, peer: str, duration_s: float, size_bytes: int
    ) -> None:
        """Pass a request that was answered at once to watchers, and log it if it was slow.

        Its duration has been noted by the caller.
        """
        note = _note(api, header, peer, duration_s, size_bytes)
        for watcher in self._watchers:
            watcher(note)
        if duration_s > self._slow_s:
            self._log(note)

    def on_late(self, context: Context) -> None:
        """Count a request that waited, pass it to watchers, and log it if it was slow.

        Its reply is complete. Slow Fetch, JoinGroup and SyncGroup requests are not logged: a long
        wait is normal there.
        """
        api, duration_s = context.api, self.monotonic() - context.begun
        self._waits[api.key].note(duration_s)
        if duration_s <= self.noteworthy_s:
            return
        peer = context.connection.session.peer_name
        note = _note(api, context, peer, duration_s, context.size_bytes)
        for watcher in self._watchers:
            watcher(note)
        if duration_s > self._slow_s and api.key not in _WAIT_FOR_OTHERS:
            self._log(note)

    def count_errors(self, api: Api, response: Any) -> None:
        """Count every error code in a response, at any depth."""
        for code in codes_in(response):
            self.errors[api.name, code] += 1

    def _log(self, note: RequestNote) -> None:
        left_out = self._window.admit()
        if left_out is not None:
            logger.warning(
                "slow request: %s v%d took %.0f ms, %d bytes, from %s (%s)%s",
                note.api,
                note.version,
                note.duration_s * 1000,
                note.size_bytes,
                one_line(note.client_id) or "a client without a name",
                note.peer,
                left_out_text(left_out),
                extra=event("slow_request", **note._asdict()),
            )


def _note(
    api: Api, header: RequestHeader, peer: str, duration_s: float, size_bytes: int
) -> RequestNote:
    client_id = header.client_id[:CLIENT_ID_CHARS_MAX]
    return RequestNote(api.name, header.version, client_id, peer, duration_s, size_bytes)


_FIELD = "error_code"


class _Plan(NamedTuple):
    has_code: bool
    within: tuple[str, ...]
    """Fields whose elements may hold a code."""


def codes_in(message: Struct) -> Iterator[int]:
    """Yield the codes that are not 0 (NONE), at any depth and in any order."""
    plan = _plan(type(message))
    if plan.has_code and (code := getattr(message, _FIELD)):
        yield code
    for name in plan.within:
        for entry in getattr(message, name) or ():
            yield from codes_in(entry)


@cache
def _plan(kind: type[Struct]) -> _Plan:
    within = (
        field.name
        for field in kind.__fields__
        if field.is_array and field.struct is not None and _has_codes(field.struct)
    )
    return _Plan(any(field.name == _FIELD for field in kind.__fields__), tuple(within))


def _has_codes(kind: type[Struct]) -> bool:
    plan = _plan(kind)
    return plan.has_code or bool(plan.within)
