"""A crash after which a partition ends earlier than before, as a power failure may leave it."""

from __future__ import annotations

from broker_process import BrokerProcess
from lakelog.records.batch import iter_batches


def lose_tail(broker: BrokerProcess, topic: str, partition: int, *, batches_kept: int) -> None:
    """Kills the broker, cuts the partition's only segment, and starts the broker again."""
    broker.kill()
    log = broker.data / f"{topic}-{partition}" / f"{0:020}.log"
    content = log.read_bytes()
    kept = list(iter_batches(memoryview(content)))[:batches_kept]
    log.write_bytes(content[: sum(len(batch) for _, batch in kept)])
    broker.restart()
