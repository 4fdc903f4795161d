"""The archive is exact although its processes are killed at the worst moments.

In `make test` one process dies at each point, in `make kills` each victim at each point. Each round
adds records, arms a fault, and lets a driver archive the records. At the moment of the
kill the next driver starts, which was warmed up before. The Java process of its predecessor lives
for seconds, or stays if only a Python worker died and the query restarts. Both then write to the
same table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import open_warehouse
from spark.kill_drivers import Fleet, ended
from spark.kill_faults import TIMEOUT_S, Faults, Kill
from spark.table_account import TableAccount
from spark.topics import MakeTopic, produce
from waiting import eventually

pytestmark = [pytest.mark.spark]

POINTS = ("before-writing", "file-written", "after-the-commit", "inside-abort")
VICTIMS = ("driver", "self", "jvm", "self", "self")
"""In the long plan each victim dies once at every point.

The order keeps deaths that need a new driver far apart; after the death of a worker, the job only
restarts its query. It keeps visits to one point apart too, because a dying JVM must not take the
fault of the next round.
"""
PLAN = [
    (point, VICTIMS[(n + shift) % len(VICTIMS)])
    for n in range(len(VICTIMS))
    for shift, point in enumerate(POINTS)
]
PLANNING = ("planning", "self")
SHORT_PLAN = [
    ("file-written", "self"),
    PLANNING,
    ("before-writing", "driver"),
    ("inside-abort", "self"),
    ("after-the-commit", "jvm"),
]
"""Each victim, and each point once, with as few drivers as that takes."""
DRIVERS = 3
RECORDS = 60
PLANNER_DIED = ": the Python process that plans batches ended unexpectedly (EOFException)"


def test_killed_anywhere_the_archive_is_exact(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kills: int
) -> None:
    plan = [*PLAN, PLANNING] if kills else SHORT_PLAN
    topic = make_topic(RECORDS)
    make_topic(1, name=f"{topic}-warm-up")
    warehouse = tmp_path / "warehouse"
    produced = RECORDS

    words = ("archive_driver.py", bootstrap, topic, str(warehouse))
    fleet = (
        Fleet(tmp_path, *words, spares=2)
        if kills
        else Fleet(tmp_path, *words, spares=1, limit=DRIVERS)
    )
    with ended(fleet):
        faults = fleet.faults
        current = fleet.current
        for point, victim in plan:
            successor = fleet.spare() if victim == "self" else fleet.next()
            successor.await_ready()
            produce(bootstrap, topic, range(produced, produced + RECORDS))
            produced += RECORDS
            happened = arm(faults, point, victim)
            current.go(["go"])
            eventually(happened, TIMEOUT_S, f"no process reached {point}")
            successor.go(["go"])
            assert successor.expect() == f"done {produced}"
            if victim == "self":
                assert current.expect() == f"done {produced}"
            else:
                current = successor

    assert [faults.taken(point) for point in POINTS] == [len(plan) // len(POINTS)] * len(POINTS)
    logs = [log.read_text() for log in tmp_path.glob("driver-*.log")]
    assert any(PLANNER_DIED in log for log in logs)
    opened_warehouse = open_warehouse(str(warehouse))
    address = TableAddress(opened_warehouse.catalog, ("lakelog", topic))
    TableAccount(address, bootstrap, topic).check()


def arm(faults: Faults, point: str, victim: str) -> Callable[[], bool]:
    faults.disarm("failing-task")
    if point == "inside-abort":
        faults.arm(Kill("failing-task", "task"))
    return faults.arm(Kill(point, victim))
