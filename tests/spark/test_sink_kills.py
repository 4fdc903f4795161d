"""A query from topic to topic writes each record once, although its processes are killed.

`--sink-kills` is the number of kills for each kind of delivery; the plan goes through all points
and victims in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from spark.kills import Copy, Kill
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

BATCH = 40
TARGET_PARTITIONS = 4

SHARED_PLAN = [
    Kill("task-writing", "self"),
    Kill("commit-sent", "self"),
    Kill("after-last-ack", "self"),
    Kill("after-commit", "self"),
    Kill("planning", "self"),
    Kill("after-last-ack", "driver"),
    Kill("task-writing", "driver"),
]
"""With `foreachBatch` the driver plans and commits, so that `self` is the driver there."""

DUPLICATING_PLAN = [Kill("task-writing", "self"), Kill("after-last-ack", "self")]


@contextmanager
def copy(
    bootstrap: str, make_topic: MakeTopic, folder: Path, kind: str, master: str
) -> Iterator[Copy]:
    topics = make_topic(partitions=3), make_topic(partitions=TARGET_PARTITIONS)
    settings: dict[str, Any] = {"kind": kind, "master": master, "topics": topics, "batch": BATCH}
    with ExitStack() as stack:
        yield Copy(bootstrap, folder, stack, **settings, target_partitions=TARGET_PARTITIONS)


def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sink-kills"))


def test_foreach_batch_writes_each_record_once_despite_kills(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    plan = list(islice(cycle(SHARED_PLAN), kills(request)))
    with copy(bootstrap, make_topic, tmp_path, "foreachBatch", "local[2,4]") as copied:
        copied.produce(BATCH)
        copied.settle()
        for kill in plan:
            copied.suffer(kill, 4 * BATCH)
        copied.check()
        assert copied.batches >= 4 * len(plan)


def test_the_same_kills_show_duplicates_at_least_once(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    with copy(bootstrap, make_topic, tmp_path, "at-least-once", "local[2,4]") as copied:
        copied.produce(BATCH)
        copied.settle()
        for kill in DUPLICATING_PLAN:
            copied.suffer(kill, 4 * BATCH)
        copied.account.rest(1.0)
        assert set(copied.account.values) == set(copied.produced)
        assert sum(copied.account.values.values()) > len(copied.produced)
