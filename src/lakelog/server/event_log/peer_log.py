"""Logs connections to other brokers and their failures, in a bounded number of lines."""

from __future__ import annotations

import logging

from lakelog.base.endpoint import Endpoint
from lakelog.base.events import event
from lakelog.runtime.api import Clock
from lakelog.server.event_log.log_window import LogWindow, left_out_text

logger = logging.getLogger(__name__)


class PeerLog:
    """One for all peers of a broker. The texts of errors begin with node id and address."""

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
