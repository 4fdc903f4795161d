"""The real ZooKeeper ensemble that the tests of one process share."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from lakelog.cli.local_cluster.ensemble import ZooKeeperEnsemble


@functools.cache
def shared() -> ZooKeeperEnsemble:
    """Return the ensemble of this process, which no test may damage. It ends with the process."""
    folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    ensemble = ZooKeeperEnsemble(folder)
    ensemble.__enter__()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(ensemble.end)
    return ensemble
