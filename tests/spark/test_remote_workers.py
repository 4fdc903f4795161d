"""A Spark master whose workers may be on other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from broker_process import eventually
from spark.table_sync import TIMEOUT_S, Sync
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

SPARK_HOME = Path(pyspark.__file__).parent
DRIVER_HOST = "127.0.0.2"
"""Return an address of this host that is not the one of sessions with local workers."""


@contextmanager
def daemon(log: Path, kind: str, *words: str) -> Iterator[Path]:
    """A process of a standalone cluster, on this host; its log."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
    settings = {"SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--webui-port", "0"],
            stdout=file,
            stderr=file,
            env=os.environ | settings,
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def awaited(log: Path, pattern: str) -> str:
    found = eventually(lambda: re.search(pattern, log.read_text()), TIMEOUT_S, pattern)
    return str(found[1])


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    log = tmp_path / "master.log"
    with daemon(log, "master.Master", "--port", "0"):
        yield awaited(log, r"(spark://127\.0\.0\.1:\d+)")


def test_remote_workers_need_a_reachable_warehouse(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, master: str
) -> None:
    topic = make_topic(6)
    where = (topic, "--warehouse", str(tmp_path / "house"), "--master", master)

    status, out, err = Sync(bootstrap, *where).end()
    assert (status, out) == (2, "")
    assert err.startswith(f"error[LL0902] workers of {master} may be on other hosts")
    assert "--shared-warehouse" in err

    work = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
    with daemon(tmp_path / "worker.log", "worker.Worker", master, *work) as worker:
        sync = Sync(bootstrap, *where, "--shared-warehouse", SPARK_LOCAL_IP=DRIVER_HOST)
        status, _, err = sync.end()
        driver = awaited(worker, r"--driver-url.*?@([0-9.]+):")

    assert (status, err.splitlines()) == (
        0,
        [
            f"workers of {master} may be on other hosts, which cannot reach a broker at 127.0.0.1",
            f"{topic}: 6 records in the table",
        ],
    )
    assert driver == DRIVER_HOST
