"""The client of a connection, as far as the broker knows it."""

from __future__ import annotations

from lakelog.base.endpoint import SecurityProtocol
from lakelog.runtime.api import Socket
from lakelog.server.authentication import Authentication


class ClientSession:
    """One client, from its connect to its disconnect.

    `listener_name` is the listener that accepted the client: it chooses the addresses that the
    client is given. Its security protocol decides whether the client must authenticate.
    """

    __slots__ = (
        "authentication",
        "client_software",
        "listener_name",
        "local",
        "peer",
        "security_protocol",
    )

    def __init__(
        self, sock: Socket, listener_name: str, security_protocol: SecurityProtocol
    ) -> None:
        """Raises `OSError` if the client is gone."""
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.authentication = Authentication(is_required=security_protocol.has_sasl)
        self.local: tuple[str, int] = sock.getsockname()[:2]
        self.peer: tuple[str, int] = sock.getpeername()[:2]
        self.client_software = ""
        """Name and version that the client has given of itself (KIP-511); empty if none."""

    @property
    def peer_name(self) -> str:
        """Host and port of the client, as log lines name it."""
        return f"{self.peer[0]}:{self.peer[1]}"
