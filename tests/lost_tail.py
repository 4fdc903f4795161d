"""Damage to the logs of a broker: a lost end, as a power failure may leave it, or altered bytes."""

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


def damage_batch(broker: BrokerProcess, topic: str, partition: int, number: int) -> None:
    """Change a byte of the batch's records in the partition's only segment."""
    log = broker.data / f"{topic}-{partition}" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    batches = [len(batch) for _, batch in iter_batches(memoryview(bytes(content)))]
    at = sum(batches[: number + 1]) - 1
    with log.open("r+b") as file:  # the broker has it open
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))
