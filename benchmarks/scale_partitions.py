"""Thousands of partitions on one broker: made, stopped, killed, started, written to and read.

Each broker has a time limit. If it is over before all partitions are created, the next steps use
the existing ones. No step begins after twice the limit; the table shows the steps left out.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from brokers import Broker, BrokerError
from scale_load import (
    batch,
    create,
    fetch_frame,
    last_of_each,
    names,
    produce_frame,
    to_each,
    wait_until_served,
)
from scale_table import Cells, side_by_side
from tables import Table

_IDLE_S = 10.0
_BATCH = batch(1000)

Note = Callable[[str], None]


def open_descriptors(broker: Broker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))  # noqa: PTH208 - no paths are needed


class _OutOfTimeError(Exception):
    """No further step is begun."""


class ManyPartitions:
    """One broker through the whole story; each step is a row of the table."""

    def __init__(self, broker: Broker, count: int, topics: int, limit_s: float, note: Note) -> None:
        self._broker = broker
        self._partitions = names(count, topics)
        self._note = note
        self._limit_s = limit_s
        self._step_until = math.inf
        self.steps: dict[str, Cells] = {}
        """Seconds, CPU-seconds, resident megabytes and descriptors by step."""
        self.idle_cpu_s = 0.0
        """Of the server, with nothing to do for `_IDLE_S`."""
        self.empty_mb = self.idle_mb = 0.0
        """Resident memory without topics, and with all of them after a restart."""

    def run(self) -> None:
        try:
            self._run()
        except _OutOfTimeError:
            self._note(f"{self._broker.name}: out of time")
        except (BrokerError, OSError) as error:
            self._note(f"{self._broker.name}: {error}")

    def _run(self) -> None:
        self._broker.start()
        time.sleep(1)
        self._broker.stop()
        self._start("start without topics")
        self._rest()
        self.empty_mb = self._broker.resident_mb()
        self._step("create", self._create)
        self._stop("stop")
        self._start("start after the stop")
        self._rest()
        self.idle_mb = self._broker.resident_mb()
        produce = [produce_frame(partition, _BATCH) for partition in self._partitions]
        fetch = [fetch_frame(partition, 0, 1 << 20) for partition in self._partitions]
        self._step("produce to each", lambda: to_each(self._broker, produce))
        self._step("fetch from each", lambda: to_each(self._broker, fetch, len(_BATCH)))
        self._stop("stop with new records")
        self._start("start again")
        self._step("produce to each again", lambda: to_each(self._broker, produce))
        self._broker.kill()
        self._start("start after kill -9")
        self._step("fetch from each after it", lambda: to_each(self._broker, fetch, len(_BATCH)))

    def _create(self) -> None:
        wanted = len(self._partitions)
        until = time.monotonic() + self._limit_s
        self._step_until = until + self._limit_s
        self._partitions = create(self._broker, self._partitions, until, note=self._note)
        self.steps["partitions"] = f"{len(self._partitions):,} of {wanted:,}", "", "", ""

    def _begin(self, name: str) -> None:
        if time.monotonic() > self._step_until:
            raise _OutOfTimeError
        self._note(f"{self._broker.name}: {name}")

    def _step(self, name: str, action: Callable[[], object]) -> None:
        self._begin(name)
        cpu, started = self._broker.cpu_seconds(), time.monotonic()
        action()
        seconds = time.monotonic() - started
        self._keep(name, seconds, self._broker.cpu_seconds() - cpu)

    def _start(self, name: str) -> None:
        """Until every topic is served, which may be after the first answer."""
        self._begin(name)
        started = time.monotonic()
        self._broker.start()
        if "without" not in name:
            wait_until_served(self._broker, last_of_each(self._partitions))
        self._keep(name, time.monotonic() - started, self._broker.cpu_seconds())

    def _stop(self, name: str) -> None:
        self._begin(name)
        started = time.monotonic()
        self._broker.stop()
        self.steps[name] = time.monotonic() - started, "", "", ""

    def _rest(self) -> None:
        before = self._broker.cpu_seconds()
        time.sleep(_IDLE_S)
        self.idle_cpu_s = self._broker.cpu_seconds() - before

    def rows(self) -> dict[str, Cells]:
        if not self.idle_mb:
            return dict(self.steps)
        each = (self.idle_mb - self.empty_mb) * 1e6 / len(self._partitions)
        idle = _IDLE_S, self.idle_cpu_s, self.idle_mb, f"{each:,.0f} B/partition"
        return {**self.steps, "with nothing to do": idle}

    def _keep(self, name: str, seconds: float, cpu_s: float) -> None:
        self.steps[name] = (
            seconds,
            cpu_s,
            self._broker.resident_mb(),
            open_descriptors(self._broker),
        )


def measure(brokers: list[Broker], count: int, topics: int, limit_s: float, note: Note) -> Table:
    """The brokers one after the other, so that neither takes the machine from the other.

    `limit_s` is what one of them has for making the partitions.
    """
    stories = []
    for broker in brokers:
        story = ManyPartitions(broker, count, topics, limit_s, note)
        try:
            story.run()
        finally:
            broker.kill()
        stories.append(story)
    first = f"{count:,} partitions of {topics} topics"
    columns = ("s", "CPU-s", "MB", "open files")
    return side_by_side(first, columns, brokers, [story.rows() for story in stories])
