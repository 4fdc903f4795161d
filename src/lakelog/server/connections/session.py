"""The client of a connection, as far as the broker knows it, and the sample of its batches."""

from __future__ import annotations

from lakelog.base.endpoint import SecurityProtocol
from lakelog.records.batch import HEADER_SIZE
from lakelog.runtime.api import Buffer, Socket
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


_FIRST = 4
_APART = 500
_APART_PER_RECORD = 40
"""A walk over one record costs a tenth to a third of the append of one batch."""
_APART_MAX = 10_000
_COUNT_AT = HEADER_SIZE - 4


class Sampling:
    """The sample of one connection: `left` batches precede the next verified batch.

    Which batches of a connection have their records verified (`records.verify=sampled`).

    A client that writes records wrongly mostly does so from the beginning, so the first batches are
    verified. Later ones are verified now and then. The distance to the next grows with the number
    of records in the last one, so that the walks cost a busy connection about a hundredth of its
    speed whatever its batches are. It is bounded, so that a client that becomes faulty is noticed.
    """

    __slots__ = ("_first", "left")

    def __init__(self) -> None:
        self._first = _FIRST
        self.left = 0

    def note(self, batch: Buffer, *, sampled: bool) -> None:
        """Count a batch that was appended, or that waits until its records are walked.

        A batch that is rejected at once is not counted, so the next one is verified as well. For
        a batch that waited before its rejection, `repeat` has the same effect.
        """
        if not sampled:
            self.left -= 1
            return
        self._first -= 1
        if self._first <= 0:
            count = int.from_bytes(batch[_COUNT_AT:HEADER_SIZE], "big")
            self.left = min(_APART + _APART_PER_RECORD * count, _APART_MAX)

    def repeat(self) -> None:
        """Verify the next batch: a sampled one was counted when it began to wait, then rejected."""
        self._first = max(self._first, 0) + 1
        self.left = 0
