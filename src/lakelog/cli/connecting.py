"""Opens the clients of commands.

A broker on this host may still be starting: `lakelog dev &` returns before the broker listens. A
refused connection to a loopback address is therefore retried for a while; to another address it is
an error.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.cli.options import Session
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.client.admin import Admin

START_S = 5.0
"""Seconds that a command waits for a broker on this host, unless `--timeout` is shorter."""
_SILENT_S = 0.5


def open_admin(session: Session) -> Admin:
    """Return an administrator. If the brokers are on this host, wait until one answers.

    Raises `UnreachableError` if no broker answers within `START_S`.
    """
    from lakelog.client.address import is_loopback, parse_bootstrap
    from lakelog.client.admin import Admin

    admin = Admin(session.brokers, timeout_s=session.timeout_s)
    if all(is_loopback(host) for host, _ in parse_bootstrap(session.brokers)):
        wait_for_broker(admin, session, min(START_S, session.timeout_s))
    return admin


def wait_for_broker(admin: Admin, session: Session, limit_s: float) -> None:
    """Wait until a broker answers; on a terminal, print a note if that takes long.

    Raises `UnreachableError` after `limit_s`.
    """
    from lakelog.client.errors import UnreachableError

    if limit_s > _SILENT_S:
        try:
            admin.connect(_SILENT_S)
            return
        except UnreachableError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                raise
        limit_s -= _SILENT_S
        if sys.stderr.isatty():
            note(f"waiting for a broker at {session.brokers} ...", quiet=session.quiet)
    admin.connect(limit_s)
