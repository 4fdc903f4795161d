"""Opens the clients of commands.

A broker on this host may still be starting: `lakelog dev &` returns before the broker listens. A
refused connection to a loopback address is therefore retried for a while; to another address it is
an error.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakelog.cli.options import CommandSession
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.cluster import Startup

START_S = 5.0
"""Seconds that a command waits for a broker on this host, unless `--timeout` is shorter."""


def open_admin(session: CommandSession) -> Admin:
    """Return an administrator. If the brokers are on this host, its first request waits for one.

    That request raises `NotStartedError` if no broker listens within `START_S`.
    """
    from lakelog.client.admin import Admin
    from lakelog.client.view import is_loopback, parse_bootstrap

    is_local = all(is_loopback(host) for host, _ in parse_bootstrap(session.brokers))
    startup = starting(session, min(START_S, session.timeout_s)) if is_local else None
    return Admin(session.brokers, timeout_s=session.timeout_s, startup=startup)


def starting(session: CommandSession, limit_s: float) -> Startup:
    """Return a wait of `limit_s` for a broker; a long one prints a note on a terminal.

    limit_s: seconds.
    """
    from lakelog.client.cluster import Startup

    def notify() -> None:
        if sys.stderr.isatty():
            note(f"waiting for a broker at {session.brokers} ...", quiet=session.quiet)

    return Startup(limit_s, notify)
