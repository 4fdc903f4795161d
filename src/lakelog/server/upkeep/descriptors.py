"""The division of the process's file descriptors: logs first, connections get the rest.

Any client can use up descriptors by opening connections, and a broker that cannot open its logs
cannot serve at all. So connections are bounded below the limit of the process.
"""

from __future__ import annotations

from typing import NamedTuple

LOG_FILES_MAX = 8192
"""More would cost kernel memory and gain nothing: a log is opened again in microseconds."""
RESERVE = 128
"""Descriptors of the loop, the listeners, the metadata log, HTTP connections (up to 32), helpers,
and files that threads open briefly."""
LIMIT_MIN = 64
"""With fewer descriptors a broker cannot do its work."""


class Descriptors(NamedTuple):
    """Numbers of descriptors by use; together they stay below the limit."""

    log_files: int
    connections: int

    @staticmethod
    def divided(limit: int) -> Descriptors:
        """Divide the soft limit of open files, which is at least `LIMIT_MIN`.

        Return the largest numbers of open log files and of connections, inclusive.
        """
        assert limit >= LIMIT_MIN
        reserve = min(RESERVE, limit // 2)
        log_files = min((limit - reserve) // 2, LOG_FILES_MAX)
        return Descriptors(log_files, limit - reserve - log_files)
