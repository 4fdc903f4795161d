"""Processor time of brokers that have nothing to do, and of ones whose consumers wait."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from brokers import Broker
from load import LoadGenerator
from programs import Program
from rounds import note
from tables import Table

_TOPIC = "idle"
_PARTITIONS = 100
_CONSUMERS = 100
_SETTLE_S = 3.0
"""From the start of the consumers, or the end of another load, until time is taken."""


def measure_idle(build: Path, brokers: Sequence[Broker], rounds: int, seconds: int) -> Table:
    """Both brokers at once: time of a processor is counted, so they do not disturb one another."""
    load, fanout = LoadGenerator(build), Program("fanout", build)
    for broker in brokers:
        load.create_topic(broker, _TOPIC, _PARTITIONS)
    rows = []
    for consumers, case in (
        (0, f"{_PARTITIONS} partitions"),
        (_CONSUMERS, f"{_CONSUMERS} waiting consumers"),
    ):
        found: dict[str, list[float]] = {broker.name: [] for broker in brokers}
        for number in range(1, rounds + 1):
            note(f"idle, {case}, round {number} of {rounds}")
            for name, percent in _one_round(fanout, brokers, consumers, seconds).items():
                found[name].append(percent)
        rows += [
            [case, name, f"{median(runs):.2f}", ", ".join(f"{run:.2f}" for run in runs)]
            for name, runs in found.items()
        ]
    return Table(("idle", "broker", "% of a core", "each round"), rows, len(brokers))


def _one_round(
    fanout: Program, brokers: Sequence[Broker], consumers: int, seconds: int
) -> dict[str, float]:
    with ExitStack() as stack:
        for broker in brokers if consumers else ():
            waiting = fanout.start(
                broker,
                topic=_TOPIC,
                consumers=consumers,
                rate=0,
                seconds=seconds + int(2 * _SETTLE_S),
            )
            stack.callback(fanout.finish, waiting, broker)
        time.sleep(_SETTLE_S)
        began = time.monotonic()
        before = {broker.name: broker.cpu_seconds() for broker in brokers}
        time.sleep(seconds)
        spent = {broker.name: broker.cpu_seconds() - before[broker.name] for broker in brokers}
        return {name: 100 * cpu_s / (time.monotonic() - began) for name, cpu_s in spent.items()}
