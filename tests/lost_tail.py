"""A crash after which a partition ends earlier than before, as a power failure may leave it."""

from __future__ import annotations

from pathlib import Path

from broker_process import BrokerProcess
from lakelog.records.batch import iter_batches


def lose_tail(broker: BrokerProcess, topic: str, partition: int, *, batches_kept: int) -> None:
    """Kills the broker, cuts the partition's only segment, and starts the broker again."""
    broker.kill()
    folder = broker.data / f"{topic}-{partition}"
    _cut(folder, slice(batches_kept))
    broker.restart()


def cut_tail(folder: Path, count: int) -> None:
    """Cut the last batches from the only segment of a partition, whose broker must not run."""
    _cut(folder, slice(-count))


def _cut(folder: Path, kept: slice) -> None:
    log = folder / f"{0:020}.log"
    content = log.read_bytes()
    batches = list(iter_batches(memoryview(content)))[kept]
    log.write_bytes(content[: sum(len(batch) for _, batch in batches)])
