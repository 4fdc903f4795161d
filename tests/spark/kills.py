"""Kills of a query from topic to topic, and an independent account of its records.

A `Fleet` has the processes of `sink_driver.py`; `Faults` arms the kills of
`faults/sitecustomize.py`; `Account` reads the target as another program does, and a `Copy` compares
it with the source.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from spark.topics import MakeTopic

HERE = Path(__file__).parent
TIMEOUT_S = 600.0
KEYS = 17
_QUIET = {"log_level": 0}
"""librdkafka logs each attempt to connect to a killed broker."""
BATCH = 40
PARTITIONS = 4
"""Of the target; the source has three."""
PHASES = {
    "planning": "planning",
    "task-writing": "task writing",
    "after-last-ack": "after the task's last acknowledgement",
    "commit-sent": "commit set sent but unanswered",
    "after-commit": "committed, unknown to Spark",
}
"""The phases of a micro-batch by the points of kills."""


class Kill(NamedTuple):
    """A process dies when it reaches a point.

    victim: `self` (the process at the point), `jvm` (the nearest Java above it: of an executor, or
    of the driver) or `driver`. With `pause` and `stop` the process waits, and the test does the
    rest.
    """

    point: str
    victim: str


@dataclass(frozen=True)
class Row:
    """The kills in one phase, and the batches and records of the source meanwhile."""

    kills: int
    batches: int
    records: int
    lost: int
    twice: int

    def __add__(self, other: Row) -> Row:
        return Row(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


class Driver:
    """A process of `sink_driver.py`, which is warm before it starts its query."""

    def __init__(self, folder: Path, number: int, master: str) -> None:
        path = os.pathsep.join([str(HERE / "faults"), os.environ.get("PYTHONPATH", "")])
        log = folder / f"driver-{number}.log"
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "sink_driver.py"), master, str(log)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ
                | {"PYTHONPATH": path, "LAKELOG_TEST_FAULTS": str(folder / "faults")},
            )
        self._is_ready = False
        self.failures: list[str] = []
        self._ready: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("ready"):
                self._ready.put(line)
            else:
                self.failures.append(line)

    def go(self, words: list[str]) -> None:
        if not self._is_ready:
            self._ready.get(timeout=TIMEOUT_S)
            self._is_ready = True
        self._write(" ".join(words))

    def stay_down(self) -> None:
        """Have the driver end with its next failure."""
        self._write("stay-down")

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def is_dead(self, within_s: float) -> bool:
        try:
            self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Faults:
    """Arms one kill at a time; a file that a process takes means that the kill happened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def arm(self, kill: Kill) -> None:
        """Create the file atomically, because processes of a dying driver may look for it."""
        unseen = self.folder / f"unseen-{kill.point}"
        unseen.write_text(kill.victim)
        unseen.rename(self.folder / kill.point)

    def taken(self, point: str) -> int:
        return len(list(self.folder.glob(f"taken-*-{point}")))

    def held(self, point: str) -> Path | None:
        """Return the file of a process that waits at a point."""
        return next(self.folder.glob(f"held-*-{point}"), None)

    def release(self, held: Path) -> None:
        """Let the waiting process continue, and the one above it that was stopped with it."""
        pids = held.read_text().split()
        held.rename(held.with_name(held.name.replace("held", "taken", 1)))
        for pid in pids:
            os.kill(int(pid), signal.SIGCONT)


class Fleet:
    """Drivers with one master and one folder of faults. spares: warm drivers in waiting."""

    def __init__(self, folder: Path, master: str, *, spares: int = 0) -> None:
        self.folder = folder
        self.faults = Faults(folder / "faults")
        self.drivers: list[Driver] = []
        self._master = master
        self._waiting: list[Driver] = []
        self._spares = spares
        self.current = self.next()

    def next(self) -> Driver:
        """Return the next driver, which replaces the present one."""
        while len(self._waiting) <= self._spares:
            self._waiting.append(Driver(self.folder, len(self.drivers), self._master))
            self.drivers.append(self._waiting[-1])
        self.current = self._waiting.pop(0)
        return self.current

    def end(self) -> None:
        for driver in self.drivers:
            driver.end()


class Account:
    """All records of the target that a consumer of another library sees."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed"
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "account",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                **_QUIET,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.records: list[tuple[int, bytes, bytes]] = []
        self.values: Counter[bytes] = Counter()

    def poll(self) -> None:
        for message in self._consumer.consume(1000, 0.1):
            assert message.error() is None, message.error()
            value = message.value() or b""
            self.records.append((message.partition() or 0, message.key() or b"", value))
            self.values[value] += 1

    def rest(self, seconds: float) -> None:
        """Read until nothing has come for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            before = len(self.records)
            self.poll()
            if len(self.records) > before:
                until = time.monotonic() + seconds

    def close(self) -> None:
        self._consumer.close()

    def disordered(self) -> list[bytes]:
        """Return the values that a consumer sees after a later one of the same key."""
        last: dict[tuple[int, bytes], int] = defaultdict(lambda: -1)
        found = []
        for partition, key, value in self.records:
            number = int(value.split(b":")[0])
            if number <= last[partition, key]:
                found.append(value)
            last[partition, key] = number
        return found


class Copy:
    """A query from one topic to another, and the source's records.

    topics: source and target. partitions: of the target. batch: records of a micro-batch.
    """

    def __init__(
        self,
        bootstrap: str,
        fleet: Fleet,
        kind: str,
        topics: tuple[str, str],
        *,
        partitions: int,
        batch: int,
    ) -> None:
        self.source, self.target = topics
        self.batch = batch
        self.checkpoint = fleet.folder / f"checkpoint-{self.target}"
        self.produced: list[bytes] = []
        self.account = Account(bootstrap, self.target, partitions)
        self._fleet = fleet
        self._words = [kind, bootstrap, *topics, str(self.checkpoint), str(batch)]
        self._producer = Producer({"bootstrap.servers": bootstrap, **_QUIET})
        self._random = random.Random(1)
        self._parts: list[tuple[str, int, int]] = []
        fleet.current.go(self._words)

    def produce(self, count: int) -> None:
        for _ in range(count):
            number = len(self.produced)
            value = b"%d:%s" % (number, self._random.randbytes(20).hex().encode())
            self._producer.produce(self.source, value, b"k%d" % (number % KEYS))
            self.produced.append(value)
        self._producer.flush()

    def suffer(
        self,
        kill: Kill,
        batches: int,
        phase: str = "",
        act: Callable[[], object] | None = None,
    ) -> None:
        """Kill a process during the next batches, and wait until all records have arrived.

        phase: of the table; by default that of the point. act: called while a process waits there.
        """
        self._parts.append((phase or PHASES[kill.point], len(self.produced), self.batches))
        faults = self._fleet.faults
        before = faults.taken(kill.point)
        faults.arm(kill)
        self.produce(batches * self.batch)
        if act is not None:
            self._wait(lambda: faults.held(kill.point) is not None, f"no process reached {kill}")
            act()
            held = faults.held(kill.point)
            assert held is not None
            faults.release(held)
        self._wait(lambda: faults.taken(kill.point) > before, f"no process reached {kill}")
        self.settle()

    def succeed(self, batches: int) -> Driver:
        """Have the next driver write some batches; return the driver before it."""
        old = self._fleet.current
        self._fleet.next().go(self._words)
        self.produce(batches * self.batch)
        self.settle()
        return old

    def end(self, old: Driver) -> None:
        """Produce until a driver that was replaced has failed."""

        def is_dead() -> bool:
            self.produce(1)
            self.account.poll()
            return old.is_dead(0.5)

        self._wait(is_dead, "a driver that was replaced still runs")

    def settle(self) -> None:
        """Wait until all records of the source are in the target."""

        def is_complete() -> bool:
            self.account.poll()
            if self._fleet.current.is_dead(0):
                self._fleet.next().go(self._words)
            return len(self.account.values) >= len(self.produced)

        self._wait(is_complete, "records are missing")

    def _wait(self, condition: Callable[[], bool], text: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            failures = [line for driver in self._fleet.drivers for line in driver.failures][-1:]
            assert time.monotonic() < deadline, f"{text}: {failures}"
            time.sleep(0.01)

    @property
    def batches(self) -> int:
        """The number of micro-batches that Spark committed."""
        names = (path.name for path in (self.checkpoint / "commits").glob("*"))
        return max((int(name) for name in names if name.isdigit()), default=-1) + 1

    @property
    def query_id(self) -> str:
        """The id of the query, from its checkpoint."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    def rows(self) -> dict[str, Row]:
        """Return a row for each phase with kills. Call `check` first: it reads the rest."""
        ends = [(first, batches) for _, first, batches in self._parts[1:]]
        ends.append((len(self.produced), self.batches))
        found: dict[str, Row] = {}
        for (phase, first, before), (end, batches) in zip(self._parts, ends, strict=True):
            counts = [self.account.values[value] for value in self.produced[first:end]]
            lost, twice = counts.count(0), sum(count > 1 for count in counts)
            row = Row(1, batches - before, end - first, lost, twice)
            found[phase] = row + found[phase] if phase in found else row
        return found

    def check(self) -> None:
        """Assert that the target has each record of the source once, in order per key."""
        self.account.rest(2.0)
        twice = {value: n for value, n in self.account.values.items() if n > 1}
        lost = set(self.produced) - set(self.account.values)
        assert (lost, twice) == (set(), {})
        assert digest(self.account.values) == digest(self.produced)
        assert not self.account.disordered()


def digest(values: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for value in sorted(values):
        found.update(b"%d:" % len(value) + value)
    return found.hexdigest()


def start(bootstrap: str, make_topic: MakeTopic, fleet: Fleet, kind: str) -> Copy:
    """Start a query; return it when it has written its first batch."""
    topics = make_topic(partitions=3), make_topic(partitions=PARTITIONS)
    copy = Copy(bootstrap, fleet, kind, topics, partitions=PARTITIONS, batch=BATCH)
    copy.produce(BATCH)
    copy.settle()
    return copy


@contextmanager
def ended(fleet: Fleet) -> Iterator[Fleet]:
    """End all drivers after the block."""
    try:
        yield fleet
    finally:
        fleet.end()
