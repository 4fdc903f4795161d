"""Speculation: a slow task and its twin both write, and each record is in the target once.

Spark runs a twin on another host only, so this needs a cluster of two addresses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from spark.kill_drivers import Fleet, ended
from spark.kill_faults import HERE, TIMEOUT_S, Kill
from spark.kills import BATCH, PARTITIONS, SCRIPT, Account, start
from spark.standalone import awaited, daemon, worker_words
from spark.topics import MakeTopic
from waiting import eventually

pytestmark = [pytest.mark.spark]

WORKERS = ("127.0.0.2", "127.0.0.3")
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of two workers with one core each; its sessions speculate."""
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
    )
    path = os.pathsep.join([str(HERE / "faults"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # The workers' own environment, which their executors inherit.
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("LAKELOG_TEST_FAULTS", str(tmp_path / "faults"))
    with ExitStack() as daemons:
        log = daemons.enter_context(daemon(tmp_path / "master", "master.Master", "--port", "0"))
        master = awaited(log, r"(spark://127\.0\.0\.1:\d+)")
        for host in WORKERS:
            words = worker_words(master, tmp_path / f"work-{host}")
            daemons.enter_context(daemon(tmp_path / host, "worker.Worker", *words, host=host))
        yield master


def test_a_slow_task_and_its_twin_write_and_one_of_them_counts(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, master: str
) -> None:
    with ended(Fleet(tmp_path, SCRIPT, master)) as fleet:
        copy = start(bootstrap, make_topic, fleet, "exactly-once")
        everything = Account(bootstrap, copy.target, PARTITIONS, "read_uncommitted")
        with closing(copy.account), closing(everything):
            fleet.faults.arm(Kill("task-writing", "pause"))
            copy.produce(BATCH)
            held = eventually(lambda: fleet.faults.held("task-writing"), TIMEOUT_S)
            assert held is not None
            # The task waits with a part of its records acknowledged: a twin has to write the batch.
            copy.settle()
            assert held.exists()
            fleet.faults.release(held)
            copy.produce(BATCH)
            copy.settle()
            copy.check()
            everything.rest(1.0)
        assert len(everything.values) == len(copy.produced)
        # More than twice if Spark starts one more attempt.
        assert max(everything.values.values()) >= 2, "both attempts have written"
    assert len(fleet.drivers) == 1
