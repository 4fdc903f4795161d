"""The gate before every answer: a connection passes it before any of its requests is answered.

`Dispatcher.on_request` is the only way in, and it compares the connection's `admitted` with the
gate's `generation` before it looks at what the connection has learned. So a request that repeats an
earlier one is subject to the same decision as a request that is decoded.

Until the generation changes, a connection may keep everything that its admission rests on: a
learned request holds its partition and limits of the configuration, and does not look them up
again. Hence code that changes the role of a partition (its leader, its epoch, its settings, whether
it is online) or the broker's configuration calls `revoke` in the same turn of the loop. A waiting
request was admitted when it was received; its partitions are looked up again when it is answered.
"""

from __future__ import annotations

from lakelog.server.connections.connection import Connection


class Gate:
    """One for a broker. Clients are not authenticated and have no quotas, so it admits them all."""

    __slots__ = ("generation",)

    def __init__(self) -> None:
        self.generation = 1
        """Higher than the `admitted` of a new connection."""

    def admit(self, connection: Connection) -> None:
        """Admit a connection, which forgets what it has learned, until `revoke`.

        Raises `ProtocolViolation` to have the connection closed.
        """
        connection.repeat = None
        connection.admitted = self.generation

    def release(self, connection: Connection) -> None:
        """Drop what a connection has learned if its admission was revoked.

        Otherwise an idle connection would keep a deleted partition in memory.
        """
        if connection.admitted != self.generation:
            connection.repeat = None

    def revoke(self) -> None:
        """Have every connection admitted again before its next request is answered."""
        self.generation += 1
