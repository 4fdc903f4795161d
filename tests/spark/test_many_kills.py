"""Many kills in each phase of a micro-batch; `--sink-kills` is their number in each form.

Drivers, executors and workers die; a broker loses acknowledged records that no commit includes; an
old driver is stopped while its successor commits, and continues. Each record must be in the target
once, in order per key, for a consumer of another library.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from lakelog.client.sink import Sink
from open_tails import cut_open_records
from spark.kill_drivers import Fleet, ended
from spark.kill_faults import Kill
from spark.kill_table import STOPPED, TRUNCATED, KillTable
from spark.kills import PARTITIONS, SCRIPT, Copy, start
from spark.topics import MakeTopic
from waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.kills]

BATCHES_PER_KILL = 4

LOCAL = [
    Kill("task-writing", "self"),
    Kill("commit-sent", "driver"),
    Kill("after-last-ack", "self"),
    Kill("planning", "driver"),
    Kill("commit-sent", "self"),
    Kill("after-last-ack", "driver"),
    Kill("planning", "self"),
    Kill("task-writing", "driver"),
    Kill("after-commit", "self"),
    Kill("commit-sent", "jvm"),
]
CLUSTER = [
    Kill("task-writing", "jvm"),
    Kill("after-last-ack", "jvm"),
    Kill("planning", "self"),
    Kill("commit-sent", "self"),
    Kill("task-writing", "self"),
    Kill("after-last-ack", "self"),
    Kill("planning", "driver"),
    Kill("commit-sent", "driver"),
]
"""In tasks, `jvm` is an executor here."""
FOREACH = [
    Kill("task-writing", "self"),
    Kill("commit-sent", "self"),
    Kill("after-last-ack", "driver"),
    Kill("planning", "self"),
]
"""The driver plans and commits, so that `self` is the driver there."""
FORMS = {
    "sets, retries": ("exactly-once", "local[2,4]", LOCAL),
    "sets, no retries": ("exactly-once", "local[2]", LOCAL),
    "sets, executors": ("exactly-once", "local-cluster[2,1,1024]", CLUSTER),
    "foreachBatch": ("foreachBatch", "local[2,4]", FOREACH),
}
STOPPED_AT = ["commit-sent", "after-last-ack", "task-writing", "planning"]


def judge(copy: Copy, table: KillTable, name: str) -> None:
    """Print the rows of one form, then check its records."""
    copy.account.rest(2.0)
    table.report(copy.rows(), name)
    copy.check()


@pytest.mark.parametrize("name", FORMS)
def test_processes_of_spark_die(
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    kill_table: KillTable,
    kills: int,
    name: str,
) -> None:
    kind, master, points = FORMS[name]
    with ended(Fleet(tmp_path, SCRIPT, master)) as fleet:
        copy = start(bootstrap, make_topic, fleet, kind)
        with closing(copy.account):
            for kill in islice(cycle(points), kills):
                copy.suffer(kill, BATCHES_PER_KILL)
            judge(copy, kill_table, name)
        assert copy.batches >= BATCHES_PER_KILL * kills


def test_an_old_driver_continues_after_its_successor_has_committed(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kill_table: KillTable, kills: int
) -> None:
    with ended(Fleet(tmp_path, SCRIPT, "local[2,4]", spares=1)) as fleet:
        copy = start(bootstrap, make_topic, fleet, "exactly-once")
        with closing(copy.account):
            for point in islice(cycle(STOPPED_AT), kills):
                old = fleet.current
                old.stay_down()
                succeed = partial(copy.succeed, BATCHES_PER_KILL // 2)
                copy.suffer(Kill(point, "stop"), BATCHES_PER_KILL // 2, STOPPED, succeed)
                copy.end(old)
                copy.settle()
            judge(copy, kill_table, STOPPED)


def test_a_broker_loses_acknowledged_records_of_an_open_batch(
    tmp_path: Path, kill_table: KillTable, kills: int
) -> None:
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ended(Fleet(tmp_path, SCRIPT, "local[2,4]")) as fleet,
    ):
        topics = iter(("from", "to"))

        def make_topic(*, partitions: int) -> str:
            name = next(topics)
            with Admin(broker.bootstrap) as admin:
                admin.topics.create(name, partitions=partitions)
            return name

        copy = start(broker.bootstrap, make_topic, fleet, "exactly-once")
        with closing(copy.account):
            for point in islice(cycle(("after-last-ack", "task-writing")), kills):
                lose = partial(lose_tails, broker, copy)
                copy.suffer(Kill(point, "pause"), BATCHES_PER_KILL, TRUNCATED, lose)
            judge(copy, kill_table, TRUNCATED)


def lose_tails(broker: BrokerProcess, copy: Copy) -> None:
    """Kill the broker, and cut records that it acknowledged from the ends of its logs."""
    with Sink(broker.bootstrap, f"lk-sink-{copy.query_id}") as sink:

        def is_marked() -> bool:
            found = sink.read()
            return found is not None and all(each.state == "Ongoing" for each in found.children)

        eventually(is_marked)
    broker.kill()
    folders = [broker.data / f"{copy.target}-{index}" for index in range(PARTITIONS)]
    cut = sum(cut_open_records(folder) for folder in folders)
    assert cut, "no record was lost"
    broker.restart()
