"""The real ZooKeeper ensembles that the tests of one process share."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from kafka_jars import jars_of
from lakelog.cli.local_cluster import ensemble

NEWEST = "3.9"
"""Of PySpark's jars."""
OLDEST = "3.8"
"""Of the jars that `tests/java/zookeeper/pom.xml` names."""
_POM = Path(__file__).parent / "java" / "zookeeper" / "pom.xml"


@functools.cache
def shared(version: str = NEWEST) -> ensemble.ZooKeeperEnsemble:
    """Return the ensemble of this process, which no test may damage. It ends with the process."""
    command = ensemble._command()
    if version == OLDEST:
        jars = jars_of(_POM)
        assert any(jars.glob(f"zookeeper-{OLDEST}.*.jar"))
        at = command.index("-cp") + 1
        command = (*command[:at], f"{jars}/*", *command[at + 1 :])
    folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    running = ensemble.ZooKeeperEnsemble(folder)
    with mock.patch.object(ensemble, "_command", lambda: command):
        running.__enter__()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(running.end)
    return running
