"""A broker that ends with the process that started it: `python -m lakelog.cli.attached_broker`.

It has the arguments of `lakelog serve`. Before them `--scratch FOLDER` names a folder that the
broker removes if the starting process is gone, because no other process is left to do it.

Standard input is a pipe whose other end the starting process holds. Nothing is ever written to it:
end of file means that the process is gone, however it ended, and the broker stops. The line on
standard output means that the broker accepts connections. Standard error is the log.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from lakelog.cli.broker_start import parse_arguments, run_broker
from lakelog.cli.failures import CliError

if TYPE_CHECKING:
    from types import FrameType

    from lakelog.server.options import ReadyInfo

_STDIN, _STDOUT = 0, 1


def main() -> NoReturn:
    """Run a broker until a signal or the end of the starting process, and exit.

    The arguments of this process are well-formed.
    """
    words, scratch = sys.argv[1:], ""
    if words[:1] == ["--scratch"]:
        _, scratch, *words = words
    signal.signal(signal.SIGTERM, _exit)  # until the broker has a handler of its own
    is_orphan = threading.Event()
    threading.Thread(target=_wait_for_starter, args=(is_orphan,), daemon=True).start()
    try:
        sys.exit(run_broker(parse_arguments(words), ready=_report))
    except CliError as error:
        sys.stderr.write(f"error[{error.code}] {error.message}\n")
        sys.exit(error.entry.exit)
    finally:
        if scratch and is_orphan.is_set():
            shutil.rmtree(scratch, ignore_errors=True)


def _wait_for_starter(is_orphan: threading.Event) -> None:
    os.read(_STDIN, 1)
    is_orphan.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _report(info: ReadyInfo) -> None:
    os.write(_STDOUT, b"ready\n")


if __name__ == "__main__":
    main()
