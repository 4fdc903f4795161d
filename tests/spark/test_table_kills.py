"""Jobs of a table die at each step, without Spark: archive, dead letters, compaction, expiry.

The oracle reads the files that the table's snapshot names with plain PyArrow, and the topic with a
consumer of another library. `make kills` runs many more rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from broker_process import LAKELOG
from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from lakelog.tables.archive.dead_letters import letters_address
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.references import referenced_files
from spark.archiver import Archiver
from spark.kills import Faults, Kill
from spark.test_archive_kills import consumed_rows
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark]

HERE = Path(__file__).parent
ARCHIVE = ["letters-committed", "metadata-written", "after-the-commit"]
COMPACTION = ["compaction-written", "compaction-noted", "metadata-written", "compaction-exchanged"]
EXPIRY = ["expiry-planned", "metadata-written", "file-deleted"]
PARTITIONS = 3
STEP = 30
BATCH_BYTES = 1500
IMPOSSIBLE_MS = 2**62
TIMEOUT_S = 240.0


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often each step is the last one of a process; 0 stands for some of the steps, once."""
    return int(request.config.getoption("--sink-kills"))


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


def environment(faults: Faults) -> dict[str, str]:
    path = os.pathsep.join(
        [str(HERE / "faults"), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    )
    return os.environ | {"PYTHONPATH": path, "LAKELOG_TEST_FAULTS": str(faults.folder)}


class Workers:
    """Two processes of a script at once; a killed one is replaced."""

    def __init__(
        self, faults: Faults, folder: Path, words: list[str], script: str = "archive_worker.py"
    ) -> None:
        self._environment = environment(faults)
        self._stop = folder / "stop"
        self._words = [sys.executable, str(HERE / script), *words, str(self._stop)]
        self.processes = [self._start() for _ in range(2)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._words, env=self._environment)

    def replace_dead(self) -> int:
        """Start a process for each dead one; return how many have died."""
        dead = [each for each in self.processes if each.poll() is not None]
        for each in dead:
            assert each.returncode == -9, "a worker failed by itself"
            self.processes[self.processes.index(each)] = self._start()
        return len(dead)

    def finish(self) -> None:
        self._stop.touch()
        for each in self.processes:
            assert each.wait(TIMEOUT_S) == 0

    def end(self) -> None:
        for each in self.processes:
            each.kill()
            each.wait()


def until(condition: Callable[[], object], what: str, work: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        work()
        time.sleep(0.2)


def commits(address: TableAddress) -> int:
    return int(address.load().metadata.last_sequence_number)


def await_commits(address: TableAddress, count: int, work: Callable[[], object]) -> None:
    before = commits(address)
    until(lambda: commits(address) >= before + count, "no process commits", work)


def rows_of(address: TableAddress, *columns: str) -> list[tuple[object, ...]]:
    """Read the rows from the files that the snapshot names, which must all exist."""
    found: list[tuple[object, ...]] = []
    for task in address.load().scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        table = pq.ParquetFile(path).read(list(columns))
        found += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return sorted(found)


def check(address: TableAddress, bootstrap: str, topic: str) -> None:
    """Compare rows and dead letters with the topic: each record is in one table, once."""
    rows = rows_of(address, "partition", "offset", "value")
    letters: list[tuple[object, ...]] = []
    if letters_address(address).exists():
        letters = rows_of(letters_address(address), "partition", "offset")
    consumed = consumed_rows(bootstrap, topic)
    assert sorted([row[:2] for row in rows] + letters) == [row[:2] for row in consumed]
    gone = set(letters)
    assert rows == [row for row in consumed if row[:2] not in gone]


@pytest.fixture
def enabled(bootstrap: str, tmp_path: Path) -> str:
    topic = f"table-kills-{tmp_path.name}"
    keys = {
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "retention.ms": "-1",
        "table.enable": "true",
        "table.errors": "dead-letter",
    }
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=PARTITIONS, configs=keys)
    return topic


def test_two_archives_die_and_pause_at_each_step(
    bootstrap: str, enabled: str, faults: Faults, tmp_path: Path, rounds: int
) -> None:
    folder = tmp_path / "warehouse"
    address = Archiver(bootstrap, enabled, folder).job.address
    numbers = iter(range(1 << 30))

    def load() -> None:
        with Producer(bootstrap) as producer:
            for number in islice(numbers, STEP):
                time_ms = IMPOSSIBLE_MS if number % 10 == 3 else None
                value, partition = b"v%d" % number, number % PARTITIONS
                producer.send(enabled, value, partition=partition, timestamp_ms=time_ms)

    workers = Workers(faults, tmp_path, [bootstrap, enabled, str(folder), str(BATCH_BYTES)])
    try:
        for point in islice(cycle(ARCHIVE), rounds * len(ARCHIVE) or 1):
            faults.arm(Kill(point, "self"))
            until(workers.replace_dead, f"no process died at {point}", load)
            faults.arm(Kill("metadata-written", "pause"))
            until(lambda: list(faults.folder.glob("held-*")), "no process was paused", load)
            await_commits(address, 2, load)
            for held in faults.folder.glob("held-*"):
                held.rename(held.with_name(held.name.replace("held", "taken", 1)))
        workers.finish()
    finally:
        workers.end()

    check(address, bootstrap, enabled)
    assert commits(address) > 6 * max(1, rounds)
    assert rows_of(letters_address(address), "partition"), "there were dead letters"


def test_compaction_and_expiry_die_at_each_step(
    bootstrap: str, make_topic: MakeTopic, faults: Faults, tmp_path: Path, rounds: int
) -> None:
    topic, folder = make_topic(), tmp_path / "warehouse"
    place = ["--warehouse", str(folder)]
    produced = iter(range(0, 1 << 30, STEP))

    def run(*words: str) -> int:
        command = [LAKELOG, "table", *words, "-b", bootstrap]
        return subprocess.run(
            command, env=environment(faults), stdout=subprocess.DEVNULL, timeout=TIMEOUT_S
        ).returncode

    assert run("create", topic, *place) == 0
    archiver = Archiver(bootstrap, topic, folder)
    address = archiver.job.address
    compact = ("compact", topic, "--min-files", "2")
    expire = ("expire", topic, "--keep", "1", "--grace", "0s")
    plan = [(point, compact) for point in COMPACTION] + [(point, expire) for point in EXPIRY]
    some = [plan[2], plan[-1]]
    for point, words in islice(cycle(plan), rounds * len(plan)) if rounds else some:
        for _ in range(2):
            first = next(produced)
            produce(bootstrap, topic, range(first, first + STEP))
            archiver.run()
        if words is expire:
            assert run(*compact) == 0, "expiry has files to remove"
        faults.arm(Kill(point, "self"))
        assert run(*words) == -9, f"the process outlived {point}"
        check(address, bootstrap, topic)
    assert run(*compact) == 0
    assert run(*expire) == 0
    check(address, bootstrap, topic)

    for path in data_files(address):
        os.utime(path, (0, 0))
    assert run(*expire, "--orphan-age", "1h") == 0
    check(address, bootstrap, topic)
    live = {path.removeprefix("file://") for path in referenced_files(address.load())}
    assert all(str(path) in live for path in data_files(address)), "orphans are removed by age"


def data_files(address: TableAddress) -> Iterator[Path]:
    location = Path(address.load().location().removeprefix("file://"))
    yield from (location / "data").glob("*.parquet")
