"""Prepares the standard streams, independently of how the process was started.

A closed descriptor (`>&-`) is replaced by the null device, so that no socket or file gets its
number and output cannot go there by mistake. stdout is UTF-8 in any locale. It is buffered even
with `python -u`, where a write may be cut short. A failed write raises `CliError`, except for a
broken pipe.
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
    """Replace `sys.stdout`, and also `sys.stdin` and `sys.stderr` if they are closed."""
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

    A write raises it too, but a command that waits for records may have nothing to write.
    """
    import select

    poll = select.poll()
    poll.register(_STDOUT, 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        raise BrokenPipeError


def _occupy(descriptor: int, flags: int) -> None:
    """Open the null device at a closed descriptor, so that its use fails or has no effect."""
    nowhere = os.open(os.devnull, flags)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


class _Stdout(io.FileIO):
    """A stdout that raises `CliError` LL0904 if data cannot be written."""

    def write(self, data: Buffer, /) -> int:
        from lakelog.cli.failures import CliError

        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CliError("LL0904", f"standard output: {error.strerror}") from error
