"""`python -m lakelog.testing.cluster_demo`, or `make demo-cluster`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from lakelog.cli.local_cluster.ensemble import EnsembleError
from lakelog.testing.brokers import BrokerError
from lakelog.testing.cluster_demo.demo import run_demo


def main() -> int:
    """Run the demo in a temporary folder; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="lakelog-demo-", ignore_cleanup_errors=True) as folder:
        try:
            return 0 if run_demo(Path(folder)) else 1
        except (EnsembleError, BrokerError) as error:
            sys.stderr.write(f"demo-cluster: {error}\n")
            return 1


if __name__ == "__main__":
    sys.exit(main())
