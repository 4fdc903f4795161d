"""The process of a broker that a test started: it reports when it is ready, and ends with the test.

Standard input is a pipe whose other end the test's process holds. Nothing is ever written to it:
end of file means that the process is gone, however it ended. The broker then stops and removes the
scratch folder, because no other process is left to do it. The line on standard output means that
the broker accepts connections. Standard error is the log.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from typing import TYPE_CHECKING

from lakelog.cli.broker_start import BrokerArguments, run_broker
from lakelog.cli.failures import CliError

if TYPE_CHECKING:
    from types import FrameType

    from lakelog.server.options import ReadyInfo

_STDIN, _STDOUT = 0, 1


def main() -> None:
    """Run a broker on PORT of loopback; arguments are SCRATCH DATA PORT [KEY=VALUE]..."""
    scratch, data, port, *settings = sys.argv[1:]
    signal.signal(signal.SIGTERM, _exit)  # until the broker has a handler of its own
    test_gone = threading.Event()
    threading.Thread(target=_wait_for_test, args=(test_gone,), daemon=True).start()
    arguments = BrokerArguments(
        data=data, listen=f"127.0.0.1:{port}", settings=tuple(settings), log_format="text"
    )
    try:
        sys.exit(run_broker(arguments, ready=_report))
    except CliError as error:
        sys.exit(f"error[{error.code}] {error.message}")
    finally:
        if test_gone.is_set():
            shutil.rmtree(scratch, ignore_errors=True)


def _wait_for_test(gone: threading.Event) -> None:
    os.read(_STDIN, 1)
    gone.set()
    os.kill(os.getpid(), signal.SIGTERM)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _report(info: ReadyInfo) -> None:
    os.write(_STDOUT, b"ready\n")


if __name__ == "__main__":
    main()
