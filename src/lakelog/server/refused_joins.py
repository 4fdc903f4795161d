"""Why a JoinGroup was refused: its response has no field for a reason, so the log has it."""

from __future__ import annotations

import logging

from lakelog.base.events import event
from lakelog.runtime.api import Clock
from lakelog.server.log_window import LogWindow, left_out_text, one_line

logger = logging.getLogger(__name__)


class RefusedJoins:
    """Logs the reasons, a bounded number of lines a minute."""

    def __init__(self, clock: Clock) -> None:
        self._window = LogWindow(clock)

    def note(self, group_id: str, client_id: str, client_host: str, reason: str) -> None:
        left_out = self._window.admit()
        if left_out is not None:
            logger.warning(
                "group %s refuses client %s of %s: %s%s",
                one_line(repr(group_id)),
                one_line(repr(client_id)),
                client_host.removeprefix("/"),
                one_line(reason),
                left_out_text(left_out),
                extra=event("join_refused", group=one_line(group_id)),
            )
