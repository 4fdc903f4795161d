"""A broker that ends with the process that started it: `python -m lakelog.cli.attached_broker`.

It has the arguments of `lakelog serve`. Standard input is a pipe whose other end the starting
process holds. Nothing is ever written to it: end of file means that the process is gone, however it
ended, and the broker stops. The line on standard output means that the broker accepts connections.
Standard error is the log.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from lakelog.cli.broker_start import BrokerArguments, parse_arguments, run_broker
from lakelog.cli.failures import CliError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from lakelog.server.options import ReadyInfo

_STDIN, _STDOUT = 0, 1


def run_attached(arguments: BrokerArguments, orphaned: Callable[[], None]) -> NoReturn:
    """Run a broker until a signal or the end of the starting process, and exit.

    orphaned: called last if the starting process is gone.
    """
    signal.signal(signal.SIGTERM, _exit)  # until the broker has a handler of its own
    is_orphan = threading.Event()
    threading.Thread(target=_wait_for_starter, args=(is_orphan,), daemon=True).start()
    try:
        sys.exit(run_broker(arguments, ready=_report))
    except CliError as error:
        sys.stderr.write(f"error[{error.code}] {error.message}\n")
        sys.exit(error.entry.exit)
    finally:
        if is_orphan.is_set():
            orphaned()


def _wait_for_starter(is_orphan: threading.Event) -> None:
    os.read(_STDIN, 1)
    is_orphan.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _report(info: ReadyInfo) -> None:
    os.write(_STDOUT, b"ready\n")


def _nothing_to_remove() -> None:
    """The data of the broker stays."""


def main() -> None:
    """Run a broker with the arguments of this process, which are well-formed."""
    run_attached(parse_arguments(sys.argv[1:]), _nothing_to_remove)


if __name__ == "__main__":
    main()
