"""Standard streams as every command may rely on them, however the process was started.

A descriptor that was closed (`>&-`) is occupied, so that no socket or file gets its number and no
write goes there by mistake. stdout is UTF-8 in any locale and buffered even with `python -u`, where
a write may be cut short; a failure to write there is a `CliError`, except for a broken pipe.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def prepare_streams() -> None:
    """Replaces `sys.stdout`, and `sys.stdin` and `sys.stderr` if they are closed."""
    if sys.stdin is None:
        _occupy(_STDIN, os.O_WRONLY)
        sys.stdin = os.fdopen(_STDIN, encoding="utf-8", closefd=False)
    if sys.stdout is None:
        _occupy(_STDOUT, os.O_RDONLY)
    if sys.stderr is None:
        _occupy(_STDERR, os.O_WRONLY)
        sys.stderr = os.fdopen(_STDERR, "w", encoding="utf-8", closefd=False)
    raw = _Stdout(_STDOUT, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=raw.isatty(),
    )


def check_stdout() -> None:
    """Raise `BrokenPipeError` if stdout is a pipe without a reader.

    A write raises it as well, but a command that waits for records may have none to write.
    """
    import select

    poll = select.poll()
    poll.register(_STDOUT, 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        raise BrokenPipeError


def _occupy(descriptor: int, flags: int) -> None:
    """Puts the null device there, opened so that what the stream is for fails or goes nowhere."""
    nowhere = os.open(os.devnull, flags)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


class _Stdout(io.FileIO):
    """Raises `CliError` LL0904 where the data cannot be written."""

    def write(self, data: Buffer, /) -> int:
        from lakelog.cli.failures import CliError

        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CliError("LL0904", f"standard output: {error.strerror}") from error
