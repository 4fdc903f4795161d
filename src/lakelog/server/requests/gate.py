"""The gate before every answer: a connection passes it before any of its requests is answered.

`Dispatcher.on_request` is the only way in, and it compares the connection's `admitted` with the
gate's `generation` before it looks at what the connection has learned. So a request that repeats an
earlier one is subject to the same decision as a request that is decoded.

All that admission rests on may be kept by a connection until the generation changes: a learned
request holds its partition and limits of the configuration, and does not look them up again. Hence
whoever changes the role of a partition (its leader, its epoch, whether it is online, its settings)
or the broker's configuration calls `revoke` in the same turn of the loop. What waits was admitted
when it came; it looks its partitions up again when it is answered.
"""

from __future__ import annotations

from lakelog.server.connections.connection import Connection


class Gate:
    """One for a broker. Clients are not authenticated and have no quotas, so it admits them all."""

    __slots__ = ("generation",)

    def __init__(self) -> None:
        self.generation = 1
        """Above the `admitted` of a new connection."""

    def admit(self, connection: Connection) -> None:
        """Admit a connection, which forgets what it has learned, until `revoke`.

        Raises `ProtocolViolation` for a connection that is to be closed.
        """
        connection.repeat = None
        connection.admitted = self.generation

    def revoke(self) -> None:
        """Have every connection admitted again before its next request is answered."""
        self.generation += 1
