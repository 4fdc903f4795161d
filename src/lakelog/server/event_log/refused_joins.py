"""Logs the reasons of refused JoinGroup requests: the response has no field for a reason."""

from __future__ import annotations

import logging

from lakelog.base.events import event
from lakelog.coordinator.group.refusal import JoinRefusal
from lakelog.runtime.api import Clock
from lakelog.server.event_log.log_window import LogWindow, left_out_text, one_line

logger = logging.getLogger(__name__)


class RefusedJoins:
    """Logs the reasons, in a bounded number of lines per minute."""

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
