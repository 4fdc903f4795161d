"""Exit statuses of commands."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of the process."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    UNREACHABLE = 5
    CONFLICT = 6
    PARTIAL = 7
    INTERRUPTED = 130
