"""A Spark master whose workers may be on other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.standalone import awaited, daemon, worker_words
from spark.table_sync import Sync
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

DRIVER_HOST = "127.0.0.2"
"""Return an address of this host that is not the one of sessions with local workers."""


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

    words = worker_words(master, tmp_path / "work")
    with daemon(tmp_path / "worker.log", "worker.Worker", *words) as worker:
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
