"""The client of a connection, as far as the broker knows it."""

from __future__ import annotations

from lakelog.runtime.api import Socket


class Session:
    """One client, from its connect to its disconnect. Clients are not authenticated.

    `listener_name` is the listener that accepted the client: it chooses the addresses that the
    client is given.
    """

    __slots__ = ("client_software", "listener_name", "local", "peer")

    def __init__(self, sock: Socket, listener_name: str) -> None:
        """Raises `OSError` if the client is gone."""
        self.listener_name = listener_name
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.client_software = ""
        """Name and version that the client has given of itself (KIP-511); empty if none."""

    @property
    def peer_name(self) -> str:
        """Host and port of the client, as log lines name it."""
        return f"{self.peer[0]}:{self.peer[1]}"
