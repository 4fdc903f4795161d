"""Seconds until a killed broker with one nearly full segment serves again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from brokers import Broker
from scale_load import batch, create, produce_frame, to_each, wait_until_served
from scale_table import Cells, side_by_side
from tables import Table

_BATCH_SIZE = 16_384
_RECORDS = 16
_PARTITION = "full", 0
_SPARE = 1 << 20


def _forget(path: Path) -> None:
    """Has the page cache give up a file, which the device must have first."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(brokers: list[Broker], size: int, rounds: int, note: Callable[[str], None]) -> Table:
    found = [_measure(broker, size, rounds, note) for broker in brokers]
    first = f"start after kill -9, segment of {size / 1e6:,.0f} MB"
    return side_by_side(first, ("s, each round", "CPU-s, each round"), brokers, found)


def _measure(
    broker: Broker, size: int, rounds: int, note: Callable[[str], None]
) -> dict[str, Cells]:
    rows: dict[str, Cells] = {}
    broker.start()
    try:
        note(f"{broker.name}: filling a segment")
        create(broker, [_PARTITION], configs={"segment.bytes": str(size)})
        records = batch(_BATCH_SIZE, _RECORDS)
        to_each(broker, [produce_frame(_PARTITION, records)] * ((size - _SPARE) // len(records)))
        for name, is_cold in (("in the page cache", False), ("from the device", True)):
            taken = [_kill_and_start(broker, is_cold, note) for _ in range(rounds)]
            seconds, cpu_s = zip(*taken, strict=True)
            rows[name] = _each(seconds), _each(cpu_s)
    finally:
        broker.stop()
    return rows


def _each(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def _kill_and_start(
    broker: Broker, is_cold: bool, note: Callable[[str], None]
) -> tuple[float, float]:
    """Seconds until the partition is served, and CPU-seconds."""
    broker.kill()
    if is_cold:
        _forget(broker.folder / "data" / "full-0" / f"{0:020d}.log")
    note(f"{broker.name}: start, {'cold' if is_cold else 'warm'}")
    started = time.monotonic()
    broker.start()
    wait_until_served(broker, [_PARTITION])
    return time.monotonic() - started, broker.cpu_seconds()
