"""A query from topic to topic writes each record once, although its processes are killed.

This is the short form, which kills workers of one driver. `test_many_kills.py` is the long one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from spark.kill_drivers import Fleet, ended
from spark.kill_faults import Kill
from spark.kill_table import KillTable
from spark.kills import SCRIPT, start
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

SHORT = [
    Kill("task-writing", "self"),
    Kill("after-last-ack", "self"),
    Kill("commit-sent", "self"),
    Kill("planning", "self"),
]
IN_TASKS = SHORT[:2]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One driver that survives the kills of the short form."""
    with ended(Fleet(tmp_path_factory.mktemp("kills"), SCRIPT, "local[2,4]")) as fleet:
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
    KillTable().report(copy.rows(), "at-least-once, which the harness must see")
    assert set(copy.account.values) == set(copy.produced)
    assert sum(copy.account.values.values()) > len(copy.produced)
