"""Refreshes of newest records die at each step, two at once, beside archive, compaction and expiry.

The oracle reads the files that the table's snapshot names with plain PyArrow, and compares them
with a dictionary of the produced records. `make kills` runs many more rounds.
"""

from __future__ import annotations

import random
from itertools import cycle, islice
from pathlib import Path

import pytest

from lakelog.cli.main import run
from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.upkeep.compaction import compact
from spark.archiver import Archiver
from spark.kill_faults import Faults, Kill
from spark.kill_jobs import Workers, hold, work_until
from spark.table_account import await_commits, rows_of

pytestmark = [pytest.mark.spark]

POINTS = ["metadata-written", "latest-written", "latest-noted", "latest-exchanged"]
PARTITIONS = 3
STEP = 40
KEYS = 60


@pytest.fixture
def topic(bootstrap: str, tmp_path: Path) -> str:
    name = f"latest-kills-{tmp_path.name}"
    keys = {"table.enable": "true", "table.latest": "true", "table.latest.buckets": "4"}
    with Admin(bootstrap) as admin:
        admin.topics.create(name, partitions=PARTITIONS, configs=keys)
    return name


class Load:
    """Produces and archives; newest: the value of each key that has one. steps: how often."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.archiver = Archiver(bootstrap, topic, folder)
        name = f"{topic}_latest"
        self.compacted = TableAddress(self.archiver.place.catalog, ("lakelog", name))
        self.newest: dict[bytes, bytes] = {}
        self.steps = 0
        self._random = random.Random(5)

    def __call__(self) -> None:
        self.steps += 1
        with Producer(self.archiver.bootstrap) as producer:
            for number in range(STEP):
                key = b"k%d" % self._random.randrange(KEYS)
                value = b"%d-%d" % (self.steps, number) if self._random.random() < 0.7 else None
                producer.send(self.archiver.topic, value, key=key)
                self.newest[key] = value or b""
        self.archiver.run()
        if self.steps % 6 == 0:
            job = self.archiver.job
            compact(job.address, job.topic, job.topic_id, files_min=2)
        self.check_keys()

    def check_keys(self) -> None:
        """Check that every version has each key once."""
        if self.compacted.exists():
            keys = [row[0] for row in rows_of(self.compacted, "key")]
            assert len(keys) == len(set(keys))


def test_two_refreshes_die_and_pause_at_each_step(
    bootstrap: str,
    topic: str,
    faults: Faults,
    tmp_path: Path,
    kills: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = Load(bootstrap, topic, tmp_path / "warehouse")
    load()
    with Workers("refresh_worker.py", [bootstrap, topic], faults, tmp_path) as workers:

        def work() -> None:
            workers.replace_dead()
            load()

        for point in islice(cycle(POINTS), kills * len(POINTS) or 2):
            happened = faults.arm(Kill(point, "self"))
            work_until(happened, f"a process died at {point}", work)
            held = hold(faults, "metadata-written", work)
            work_until(load.compacted.exists, "a table", work)
            await_commits(load.compacted, 2, work)
            faults.release(held)
        workers.finish()

    expected = {key: value for key, value in load.newest.items() if value}
    assert rows_of(load.compacted, "key", "value") == sorted(expected.items())
    load.check_keys()
    expire = ["expire", topic, "--keep", "1", "--grace", "0s", "--older-than", "0s"]
    for words in (expire, ["audit", topic]):
        assert run(["table", *words, "-b", bootstrap]) == 0, capsys.readouterr().err
