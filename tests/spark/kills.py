"""Kills of a query from topic to topic, and an independent account of its records.

`Account` reads the target as another program does, and a `Copy` compares it with the source.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, Producer, TopicPartition

from spark.kill_drivers import Driver, Fleet
from spark.kill_faults import TIMEOUT_S, Kill
from spark.kill_table import PHASES, Ledger, Row
from spark.topics import MakeTopic
from waiting import eventually

SCRIPT = "sink_driver.py"
KEYS = 17
_QUIET = {"log_level": 0}
"""librdkafka logs each attempt to connect to a killed broker."""
BATCH = 40
PARTITIONS = 4
"""Of the target; the source has three."""


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
        self._ledger = Ledger()
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
        self._ledger.begin(phase or PHASES[kill.point], len(self.produced), self.batches)
        faults = self._fleet.faults
        happened = faults.arm(kill)
        self.produce(batches * self.batch)
        if act is not None:
            self._wait(lambda: faults.held(kill.point) is not None, f"a process reached {kill}")
            act()
            held = faults.held(kill.point)
            assert held is not None
            faults.release(held)
        self._wait(happened, f"a process reached {kill}")
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

        self._wait(is_dead, "the end of a driver that was replaced")

    def settle(self) -> None:
        """Wait until all records of the source are in the target."""

        def is_complete() -> bool:
            self.account.poll()
            if self._fleet.current.is_dead(0):
                self._fleet.next().go(self._words)
            return len(self.account.values) >= len(self.produced)

        self._wait(is_complete, "all records")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def described() -> str:
            failures = [line for driver in self._fleet.drivers for line in driver.failures][-1:]
            return f"{what} (the last failure: {failures})"

        eventually(condition, TIMEOUT_S, described, every_s=0.01)

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
        copies = ((n, self.account.values[value]) for n, value in enumerate(self.produced))
        return self._ledger.rows(copies, len(self.produced), self.batches)

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
