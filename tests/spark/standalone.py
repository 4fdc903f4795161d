"""Spark's standalone cluster from pip's PySpark: master and workers on addresses of this host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from kafka_jars import QUICK_START
from waiting import eventually

_HOME = Path(pyspark.__file__).parent
_TIMEOUT_S = 120.0


@contextmanager
def daemon(log: Path, kind: str, *words: str, host: str = "127.0.0.1") -> Iterator[Path]:
    """A process of a standalone cluster, on this host; its log."""
    command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
    settings = {"SPARK_HOME": str(_HOME), "PYSPARK_PYTHON": sys.executable}
    settings |= {"SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK_START)}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--host", host, "--webui-port", "0"],
            stdout=file,
            stderr=file,
            env=os.environ | settings,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def worker_words(master: str, work: Path) -> list[str]:
    """The arguments of a worker with one core, whose executors run below `work`."""
    return [master, "--cores", "1", "--memory", "1g", "--work-dir", str(work)]


def awaited(log: Path, pattern: str) -> str:
    found = eventually(lambda: re.search(pattern, log.read_text()), _TIMEOUT_S, pattern)
    return str(found[1])
