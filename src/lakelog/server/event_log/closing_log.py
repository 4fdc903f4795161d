"""Logs which connections the broker closes and why, in a bounded number of lines.

A peer can reconnect at once, so without a bound a hostile one could fill the log.
"""

from __future__ import annotations

import logging

from lakelog.base.errors import ErrorCode
from lakelog.base.events import event
from lakelog.runtime.api import Clock
from lakelog.server.event_log.log_window import LogWindow, left_out_text, one_line

logger = logging.getLogger(__name__)


class ClosingLog:
    """One for all connections of a broker."""

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
