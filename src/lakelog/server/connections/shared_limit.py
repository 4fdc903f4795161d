"""A share of the memory budget that connections own, and that closes the largest of them.

The limit is enforced whenever a connection holds more, not periodically, so a burst cannot exceed
it. The connections that hold the most are closed: clients are not authenticated, so nothing else
distinguishes them.
"""

from __future__ import annotations

from typing import Protocol

from lakelog.base.memory_budget import Account, Share
from lakelog.server.connections.session import Session
from lakelog.server.event_log.rate_limited import ClosingLog


class Holder(Protocol):
    """A connection that holds bytes."""

    closed: bool
    session: Session

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
        held = {each: size for each, size in self.account if not each.closed}
        left = sum(held.values())
        for connection in sorted(held, key=held.__getitem__, reverse=True):
            if left <= self._share.bytes_max:
                return
            left -= held[connection]
            self._closings.closing(connection.session.peer_name, self._reason)
            connection.close()
