"""Log lines that clients and peers can cause, limited to a number of lines per minute.

Start with `LogWindow`, the limit. A peer can reconnect at once, so without a bound a hostile one
could fill the log. Closed connections, connections to other brokers, and refused JoinGroup requests
have such lines; the response of the last has no field for a reason.
"""

from __future__ import annotations

import logging

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.coordinator.group.classic.member import JoinRefusal
from lakelog.runtime.api import Clock

logger = logging.getLogger(__name__)

WINDOW_S = 60.0
LINES_MAX = 100
"""Lines of a kind in one window; the next line has the number of those left out."""

_CHARS_MAX = 1000
"""Characters of a peer's text in one line; a string of the protocol has up to 32,767 bytes."""


class LogWindow:
    """Windows of `WINDOW_S` seconds, each of which begins with its first line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin = 0.0
        self._lines = self._left_out = 0

    def admit(self) -> int | None:
        """Return the number of lines left out before this one, or None to leave this one out."""
        now = self._clock.monotonic()
        if not self._lines or now - self._begin >= WINDOW_S:
            self._begin, self._lines = now, 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def one_line(text: object) -> str:
    """Return text that a peer may have sent with control characters escaped, for a log line.

    It is cut to `_CHARS_MAX` characters, and escaped line breaks cannot forge another line.
    """
    text = str(text)
    shown = text if len(text) <= _CHARS_MAX else f"{text[:_CHARS_MAX]}..."
    return "".join(char if char.isprintable() else _escaped(char) for char in shown)


def left_out_text(left_out: int) -> str:
    """Return the end of a line with the number of lines left out before it, empty for 0."""
    return f" (and {left_out} others before it, without a line)" if left_out else ""


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


class ClosingLog:
    """Logs which connections the broker closes, and why. One object for all of them."""

    def __init__(self, clock: Clock) -> None:
        self._closings = LogWindow(clock)
        self._bugs = LogWindow(clock)
        self.closed = 0
        """Closed connections, with a line or without."""
        self.expired = 0
        """Connections that were closed because they were idle."""

    def closing(self, peer: str, reason: object) -> None:
        """Count and log a connection that the broker closes.

        `reason` may contain text of the peer, which is escaped and cut.
        """
        self.closed += 1
        left_out = self._closings.admit()
        if left_out is not None:
            text = one_line(reason) + left_out_text(left_out)
            logger.warning(
                "closing %s: %s", peer, text, extra=event("connection_closed", peer=peer)
            )

    def bug(self, api: str, peer: str, error: BaseException) -> None:
        """Log an exception of a handler, with its traceback: no error code describes a bug."""
        if self._bugs.admit() is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR.name
            logger.error(
                "%s from %s failed with %s",
                api,
                peer,
                code,
                exc_info=error,
                extra=event("request_failed", api=api, peer=peer),
            )


class PeerLog:
    """Logs connections to other brokers and their failures. One object for all brokers.

    The texts of errors begin with node id and address.
    """

    def __init__(self, clock: Clock) -> None:
        self._window = LogWindow(clock)

    def connected(self, node_id: int, endpoint: Endpoint) -> None:
        """Log a connection to a broker."""
        left_out = self._window.admit()
        if left_out is not None:
            logger.info(
                "Connected to broker %d at %s%s",
                node_id,
                endpoint.address,
                left_out_text(left_out),
                extra=event("peer_connected", peer=node_id, address=endpoint.address),
            )

    def unreachable(self, node_id: int, endpoint: Endpoint, reason: str) -> None:
        """Log a broker that did not answer."""
        left_out = self._window.admit()
        if left_out is not None:
            logger.warning(
                "Cannot reach %s%s",
                reason,
                left_out_text(left_out),
                extra=event("peer_unreachable", peer=node_id, address=endpoint.address),
            )

    def refused(self, node_id: int, endpoint: Endpoint, reason: str) -> None:
        """Log an address at which another process than the expected broker answered (KIP-1242)."""
        left_out = self._window.admit()
        if left_out is not None:
            logger.warning(
                "Not connected to %s%s",
                reason,
                left_out_text(left_out),
                extra=event("peer_refused", peer=node_id, address=endpoint.address),
            )


class RefusedJoins:
    """Logs the reasons of refused JoinGroup requests."""

    def __init__(self, clock: Clock) -> None:
        self._window = LogWindow(clock)

    def note(self, refusal: JoinRefusal) -> None:
        """Log a refusal, unless too many were logged in this window."""
        left_out = self._window.admit()
        if left_out is None:
            return
        group, client, member = (
            one_line(repr(name))
            for name in (refusal.group_id, refusal.client_id, refusal.member_id)
        )
        logger.warning(
            "group %s refuses member %s of client %s at %s with %s: %s%s",
            group,
            member,
            client,
            refusal.client_host.removeprefix("/"),
            refusal.code.name,
            one_line(refusal.reason),
            left_out_text(left_out),
            extra=event(
                "join_refused",
                code="LL0205",
                group=one_line(refusal.group_id),
                member_id=one_line(refusal.member_id),
                client_id=one_line(refusal.client_id),
                error=refusal.code.name,
            ),
        )
