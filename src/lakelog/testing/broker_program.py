"""The process of a broker that a test started (`lakelog.cli.attached_broker`).

When the test's process is gone, the broker removes the scratch folder, because no other process is
left to do it.
"""

from __future__ import annotations

import shutil
import sys

from lakelog.cli.attached_broker import run_attached
from lakelog.cli.broker_start import BrokerArguments


def main() -> None:
    """Run a broker on PORT of loopback; arguments are SCRATCH DATA PORT [KEY=VALUE]..."""
    scratch, data, port, *settings = sys.argv[1:]
    arguments = BrokerArguments(
        data=data, listen=f"127.0.0.1:{port}", settings=tuple(settings), log_format="text"
    )
    run_attached(arguments, lambda: shutil.rmtree(scratch, ignore_errors=True))


if __name__ == "__main__":
    main()
