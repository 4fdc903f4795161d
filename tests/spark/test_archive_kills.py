"""The archive is exact although its processes are killed at the worst moments.

Each round adds records, arms a fault, and lets a driver archive the records. At the moment of the
kill the next driver starts, which was warmed up before. The Java process of its predecessor lives
for seconds, or stays if only a Python worker died and the query restarts. Both then write to the
same table.
"""

from __future__ import annotations

import hashlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import load_catalog

from lakelog.tables.iceberg.warehouse import open_warehouse
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark]

HERE = Path(__file__).parent
POINTS = ("before-writing", "file-written", "after-the-commit", "inside-abort")
VICTIMS = ("driver", "worker", "jvm", "worker", "worker")
"""Each victim dies once at every point.

The order keeps deaths that need a new driver far apart; after the death of a worker, the job only
restarts its query. It keeps visits to one point apart too, because a dying JVM must not take the
fault of the next round.
"""
PLAN = [
    (point, VICTIMS[(n + shift) % len(VICTIMS)])
    for n in range(len(VICTIMS))
    for shift, point in enumerate(POINTS)
]
DRIVERS = 2 + sum(victim != "worker" for _, victim in PLAN)
AHEAD = 2
RECORDS = 60
TIMEOUT_S = 240.0


class Driver:
    """A process of `archive_driver.py`. Its lines are read as they come."""

    def __init__(self, folder: Path, number: int, arguments: list[str]) -> None:
        path = os.pathsep.join([str(HERE / "faults"), os.environ.get("PYTHONPATH", "")])
        log = folder / f"driver-{number}.log"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "archive_driver.py"), *arguments, str(log)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ
                | {"PYTHONPATH": path, "LAKELOG_TEST_FAULTS": str(folder / "faults")},
            )
        self._is_ready = False
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def expect(self, word: str) -> str:
        line = self._lines.get(timeout=TIMEOUT_S)
        assert line.startswith(word), line
        return line

    def wait_until_ready(self) -> None:
        if not self._is_ready:
            self.expect("ready")
            self._is_ready = True

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Faults:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def arm(self, point: str, victim: str) -> None:
        (self.folder / "failing-task").unlink(missing_ok=True)
        if point == "inside-abort":
            self._put("failing-task", "task")
        self._put(point, victim)

    def _put(self, name: str, content: str) -> None:
        """Create the file atomically, because processes of a dying driver may look for it."""
        unseen = self.folder / f"unseen-{name}"
        unseen.write_text(content)
        unseen.rename(self.folder / name)

    def taken(self, point: str) -> int:
        return len(list(self.folder.glob(f"taken-*-{point}")))

    def wait_for(self, point: str, times: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self.taken(point) < times:
            assert time.monotonic() < deadline, f"no process reached {point}"
            time.sleep(0.01)


class Fleet:
    """As many drivers as will be needed; some are warmed up while their predecessor works."""

    def __init__(self, folder: Path, arguments: list[str], stack: ExitStack) -> None:
        self._cold = iter(range(DRIVERS))
        self._warming: deque[Driver] = deque()
        self._folder, self._arguments = folder, arguments
        self._stack = stack

    def peek(self) -> Driver:
        """The next one, warmed up."""
        self._warm_up(AHEAD)
        driver = self._warming[0]
        driver.wait_until_ready()
        return driver

    def next(self) -> Driver:
        """The same, and its successor is warmed up from now on."""
        driver = self.peek()
        self._warming.popleft()
        self._warm_up(AHEAD)
        return driver

    def _warm_up(self, count: int) -> None:
        for number in islice(self._cold, count - len(self._warming)):
            self._warming.append(Driver(self._folder, number, self._arguments))
            self._stack.callback(self._warming[-1].end)


def test_killed_anywhere_the_archive_is_exact(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(RECORDS)
    make_topic(1, name=f"{topic}-warm-up")
    faults = Faults(tmp_path / "faults")
    warehouse = tmp_path / "warehouse"
    produced = RECORDS

    with ExitStack() as stack:
        fleet = Fleet(tmp_path, [bootstrap, topic, str(warehouse)], stack)
        current = fleet.next()
        for point, victim in PLAN:
            successor = fleet.peek() if victim == "worker" else fleet.next()
            produce(bootstrap, topic, range(produced, produced + RECORDS))
            produced += RECORDS
            before = faults.taken(point)
            faults.arm(point, victim)
            current.go()
            faults.wait_for(point, before + 1)
            successor.go()
            assert successor.expect("done") == f"done {produced}"
            if victim == "worker":
                assert current.expect("done") == f"done {produced}"
            else:
                current = successor

    assert [faults.taken(point) for point in POINTS] == [len(VICTIMS)] * len(POINTS)
    archived = archived_rows(topic, warehouse)
    for partition in range(3):
        offsets = [offset for p, offset, _ in archived if p == partition]
        assert offsets == list(range(produced // 3))
    assert digest(archived) == digest(consumed_rows(bootstrap, topic))


Row = tuple[int, int, bytes]


def archived_rows(topic: str, warehouse: Path) -> list[Row]:
    """Read by plain PyArrow from the files that the table's snapshot names."""
    catalog = load_catalog("lakelog", **open_warehouse(str(warehouse)).catalog)
    tasks = catalog.load_table(("lakelog", topic)).scan().plan_files()
    rows: list[Row] = []
    for task in tasks:
        path = task.file.file_path.removeprefix("file://")
        table = pq.read_table(path, columns=["partition", "offset", "value"])
        rows.extend(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows)


def consumed_rows(bootstrap: str, topic: str) -> list[Row]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "kills", "enable.auto.commit": False}
    consumer = Consumer(settings)
    rows: list[Row] = []
    for partition in range(3):
        position = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(position)
        consumer.assign([position])
        while len(rows) == 0 or rows[-1][:2] != (partition, end - 1):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            rows.append((partition, message.offset() or 0, message.value() or b""))
    consumer.close()
    return sorted(rows)


def digest(rows: list[Row]) -> str:
    found = hashlib.sha256()
    for partition, offset, value in rows:
        found.update(b"%d %d %d:" % (partition, offset, len(value)) + value)
    return found.hexdigest()
