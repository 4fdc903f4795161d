"""The limits of connections: of each one, of the memory of all, and of the rate of new ones.

A `SharedLimit` is a share of the memory budget that connections own. It is enforced whenever a
connection holds more, not periodically, so a burst cannot exceed it. The connections that hold the
most are closed: clients are not authenticated, so nothing else distinguishes them.

`AcceptRate` bounds the rate of new connections (`max.connection.creation.rate`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from lakelog.base.memory_budget import Account, Share
from lakelog.runtime.api import Clock
from lakelog.server.connections.receive_buffer import RequestMemory
from lakelog.server.connections.request_budget import RequestBudget
from lakelog.server.connections.session import ClientSession
from lakelog.server.log_limits import ClosingLog


class AcceptRate:
    """One rate for all listeners; a pause earns a second's worth of connections at once.

    A client that connects too early waits to be accepted; none is rejected (KIP-612).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._allowance = 0.0
        self._since = -1.0

    def delay_s(self, per_second: int) -> float:
        """Return the seconds until another connection may be accepted; 0 if it may be now."""
        now = self._clock.monotonic()
        # A broker that has just started has earned a whole second, like after a pause.
        earned = (now - self._since) * per_second if self._since >= 0 else per_second
        self._allowance, self._since = min(per_second, self._allowance + earned), now
        return 0.0 if self._allowance >= 1 else (1 - self._allowance) / max(per_second, 1)

    def take(self) -> None:
        """Count a connection that was accepted."""
        self._allowance -= 1


class Holder(Protocol):
    """A connection that holds bytes."""

    closed: bool
    session: ClientSession

    def close(self) -> None: ...


class SharedLimit:
    """The connections that own the bytes of `share`; `reason` is logged for closed ones."""

    def __init__(self, share: Share, closings: ClosingLog, reason: str) -> None:
        self._share = share
        self.account: Account[Holder] = Account(share)
        """The bytes of each connection; a release needs no check of the limit."""
        self._closings = closings
        self._reason = reason

    @property
    def total(self) -> int:
        """Bytes of all connections."""
        return self.account.total

    def of(self, connection: Holder) -> int:
        """Return the bytes that `connection` holds."""
        return self.account.of(connection)

    def hold(self, connection: Holder, size: int) -> None:
        """Set the number of bytes that `connection` holds; close connections as `add` does."""
        self.add(connection, size - self.account.of(connection))

    def add(self, connection: Holder, more: int) -> None:
        """Add `more` bytes, which may be negative.

        If all connections together then exceed the limit, the largest are closed, `connection`
        possibly among them.
        """
        self.account.add(connection, more)
        if more > 0 and self._share.is_exceeded:
            self._close_largest()

    def _close_largest(self) -> None:
        """Close the largest; bytes of closed connections will be released and do not count."""
        # The connections are sorted only here, when the limit is exceeded; counting must stay
        # cheap.
        held = {connection: size for connection, size in self.account if not connection.closed}
        left = sum(held.values())
        for connection in sorted(held, key=held.__getitem__, reverse=True):
            if left <= self._share.bytes_max:
                return
            left -= held[connection]
            self._closings.closing(connection.session.peer_name, self._reason)
            connection.close()


class Limits(NamedTuple):
    """All but the first are shared by all connections of a broker."""

    frame_size_max: int
    """Bytes of a request, which are checked before it is buffered."""
    memory: RequestMemory
    unread: SharedLimit
    iterations: RequestBudget
