"""Memory of requests that wait for their response, limited for all connections together.

The objects of a decoded request may take eighty times its bytes (an assignment of a SyncGroup is
three bytes on the wire and 241 in memory). A request that waits, for records, for other members or
for the log, keeps them. Its memory is estimated by its size and its array elements. Small requests
are not counted: the number of connections bounds them.
"""

from __future__ import annotations

from lakelog.server.connections.connection import Connection
from lakelog.server.connections.shared_limit import SharedLimit
from lakelog.server.event_log.closing_log import ClosingLog
from lakelog.server.requests.context import Context
from lakelog.wire.elements import count_elements
from lakelog.wire.schema import Message

UNCOUNTED_MAX = 256
"""Bytes of a request that is not counted; it takes less than 20 KiB."""
ELEMENT_BYTES = 512
"""Bytes of one array element at most, decoded and with the objects that its handler makes."""
_TEXT_FACTOR = 4
"""Bytes of a string's character in memory, for one on the wire, at most."""
_PRODUCE = 0
_REASON = "requests that wait for an answer take more memory than queued.max.request.bytes"


class WaitingRequests:
    """`most` is in bytes; 0 or less is no limit."""

    def __init__(self, most: int, closings: ClosingLog) -> None:
        self._bound = SharedLimit(most, closings, _REASON)
        self._sizes: dict[Connection, dict[Context, int]] = {}

    @property
    def total(self) -> int:
        """Estimated bytes of all waiting requests."""
        return self._bound.total

    def add(self, context: Context, request: Message) -> None:
        """`request` waits until `remove`, or until its connection is closed."""
        connection = context.connection
        if connection.closed and context.on_abandon is not None:
            return
        size = _kept_bytes(context) + count_elements(request) * ELEMENT_BYTES
        self._sizes.setdefault(connection, {})[context] = size
        self._bound.add(connection, size)

    def remove(self, context: Context) -> None:
        """The request has been answered, or will not be."""
        connection = context.connection
        sizes = self._sizes.get(connection)
        if sizes is None or context not in sizes:
            return
        size = sizes.pop(context)
        if not sizes:
            del self._sizes[connection]
        self._bound.add(connection, -size)

    def on_close(self, connection: Connection) -> None:
        """Remove the abandoned requests; the others keep their memory until they end."""
        for context in list(self._sizes.get(connection, ())):
            if context.on_abandon is not None:
                self.remove(context)


def _kept_bytes(context: Context) -> int:
    """Return the bytes of strings and binary fields that a waiting request keeps, at most.

    Produce keeps its records while it has not appended them.
    """
    if context.api.key == _PRODUCE:
        name = _TEXT_FACTOR * len(context.client_id)
        return name if context.pipelined else name + context.size_bytes
    return _TEXT_FACTOR * context.size_bytes
