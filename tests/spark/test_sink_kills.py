"""A query from topic to topic writes each record once, although its processes are killed.

The short form kills workers of one driver. `--sink-kills` is the number of kills of the long form:
of drivers, executors and workers, at all points, with retries of tasks and without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest

from spark.kills import Copy, Fleet, Kill
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

BATCH = 40
PARTITIONS = 4
BATCHES_PER_KILL = 4

SHORT = [
    Kill("task-writing", "self"),
    Kill("after-last-ack", "self"),
    Kill("commit-sent", "self"),
    Kill("planning", "self"),
]
IN_TASKS = SHORT[:2]

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
    Kill("commit-sent", "self"),
    Kill("planning", "self"),
    Kill("after-last-ack", "self"),
    Kill("commit-sent", "driver"),
]
"""In tasks, `jvm` is an executor here."""
FOREACH = [
    Kill("task-writing", "self"),
    Kill("commit-sent", "self"),
    Kill("after-last-ack", "self"),
    Kill("after-commit", "self"),
    Kill("planning", "self"),
    Kill("after-last-ack", "driver"),
]
"""The driver plans and commits, so that `self` is the driver there."""

LONG = {
    "sets, retries": ("exactly-once", "local[2,4]", LOCAL),
    "sets, no retries": ("exactly-once", "local[2]", LOCAL),
    "sets, executors": ("exactly-once", "local-cluster[2,1,1024]", CLUSTER),
    "foreachBatch": ("foreachBatch", "local[2,4]", FOREACH),
}


def start(bootstrap: str, make_topic: MakeTopic, fleet: Fleet, kind: str) -> Copy:
    topics = make_topic(partitions=3), make_topic(partitions=PARTITIONS)
    copy = Copy(bootstrap, fleet, kind, topics, partitions=PARTITIONS, batch=BATCH)
    copy.produce(BATCH)
    copy.settle()
    return copy


@contextmanager
def ended(fleet: Fleet) -> Iterator[Fleet]:
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One driver that survives the kills of the short form."""
    with ended(Fleet(tmp_path_factory.mktemp("kills"), "local[2,4]")) as fleet:
        yield fleet


@pytest.mark.parametrize(("kind", "plan"), [("exactly-once", SHORT), ("foreachBatch", IN_TASKS)])
def test_killed_anywhere_each_record_is_written_once(
    bootstrap: str, make_topic: MakeTopic, fleet: Fleet, kind: str, plan: list[Kill]
) -> None:
    copy = start(bootstrap, make_topic, fleet, kind)
    with closing(copy.account):
        for kill in plan:
            copy.suffer(kill, 2)
        copy.check()
    assert len(fleet.drivers) == 1


def test_the_same_kills_show_duplicates_at_least_once(
    bootstrap: str, make_topic: MakeTopic, fleet: Fleet
) -> None:
    copy = start(bootstrap, make_topic, fleet, "at-least-once")
    with closing(copy.account):
        for kill in IN_TASKS:
            copy.suffer(kill, 2)
        copy.account.rest(1.0)
    assert set(copy.account.values) == set(copy.produced)
    assert sum(copy.account.values.values()) > len(copy.produced)


@pytest.mark.kills
@pytest.mark.parametrize("name", LONG)
def test_many_kills(
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    name: str,
) -> None:
    kills = int(request.config.getoption("--sink-kills"))
    kind, master, points = LONG[name]
    plan = list(islice(cycle(points), kills))
    with ended(Fleet(tmp_path, master, spares=1)) as fleet:
        copy = start(bootstrap, make_topic, fleet, kind)
        with closing(copy.account):
            for kill in plan:
                copy.suffer(kill, BATCHES_PER_KILL)
            copy.check()
        print(f"{name}: {copy.batches} batches, {len(copy.produced)} records, {Counter(plan)}")
        assert copy.batches >= BATCHES_PER_KILL * kills
