"""Memory of requests that wait for their response: the share `waiting`.

The objects of a decoded request may take eighty times its bytes (an assignment of a SyncGroup is
three bytes on the wire and 241 in memory). A request that waits, for records, for other members or
for the log, keeps them. Its memory is estimated by its size and its array elements. Records of a
waiting Produce request are counted as received (`RequestMemory.holding`), not here. A cached Fetch
that waits is not counted: it is never decoded, and a connection has at most one.
"""

from __future__ import annotations

from lakelog.base.memory_budget import Share
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.limits import SharedLimit
from lakelog.server.log_limits import ClosingLog
from lakelog.server.requests.context import Context
from lakelog.server.requests.metrics import RequestMetrics
from lakelog.wire.schema import Message, count_elements

ELEMENT_BYTES = 512
"""Bytes of one array element at most, decoded and with the objects that its handler makes."""
_TEXT_FACTOR = 4
"""Bytes of a string's character in memory, for one on the wire, at most."""
_PRODUCE = 0
_REASON = "requests that wait for an answer take more memory than queued.max.request.bytes"


class WaitingRequests:
    """Counts the bytes of each request with its connection, and notes them in its context."""

    def __init__(self, share: Share, closings: ClosingLog, requests: RequestMetrics) -> None:
        self._limit = SharedLimit(share, closings, _REASON)
        self._requests = requests

    @property
    def total(self) -> int:
        """Estimated bytes of all waiting requests."""
        return self._limit.total

    def of(self, connection: Connection) -> int:
        """Return the estimated bytes of a connection's waiting requests."""
        return self._limit.of(connection)

    def add(self, context: Context, request: Message) -> None:
        """Count the estimated bytes of `request` until it is answered or `remove` is called.

        The answer also counts its duration, from `context.begun`.

        If the share is exceeded then, the connections with the most bytes are closed.
        """
        connection = context.connection
        context.on_complete = self._on_answer
        # The connection closed while the handler ran, and `on_close` has removed its waiting
        # requests: nothing would remove this one.
        if connection.closed and context.on_abandon is not None:
            return
        assert not context.waiting_bytes
        context.waiting_bytes = _kept_bytes(context) + count_elements(request) * ELEMENT_BYTES
        self._limit.add(connection, context.waiting_bytes)

    def remove(self, context: Context) -> None:
        """Stop counting a request that has been answered or will not be.

        A request that was not counted has no effect.
        """
        size, context.waiting_bytes = context.waiting_bytes, 0
        self._limit.account.add(context.connection, -size)

    def _on_answer(self, context: Context) -> None:
        self.remove(context)
        self._requests.on_late(context)


def _kept_bytes(context: Context) -> int:
    """Return the bytes of strings and binary fields that a waiting request keeps, at most."""
    if context.api.key == _PRODUCE:
        return _TEXT_FACTOR * len(context.client_id)
    return _TEXT_FACTOR * context.size_bytes
