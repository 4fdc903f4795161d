"""Warns about records that retention keeps only because a table does not have them yet.

Without the archive job such records fill the disk in the end. The broker logs a
line when retention of a partition begins to wait, one when that ends, and one in each round in
which the kept records take more than the free space of the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from lakelog.base.events import event
from lakelog.replica.partition import Partition

logger = logging.getLogger(__name__)


class HeldRecords:
    """The partitions whose retention waits for the archive.

    free_bytes: returns the free space of the data folder.
    """

    def __init__(self, free_bytes: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self._holders: set[Partition] = set()

    def note(self, partition: Partition) -> None:
        """Log a change after retention of the partition."""
        held, is_holder = partition.held_bytes, partition in self._holders
        topic, index = partition.topic, partition.index
        if held and not is_holder:
            self._holders.add(partition)
            logger.warning(
                "retention of %s-%d keeps %d B that its table does not have yet; run lakelog table "
                "sync --enabled, or set table.enable=false",
                topic,
                index,
                held,
                extra=event("retention_held", bytes=held, topic=topic, partition=index),
            )
        elif is_holder and not held:
            self._holders.discard(partition)
            logger.info(
                "retention of %s-%d no longer waits for its table",
                topic,
                index,
                extra=event("retention_resumed", topic=topic, partition=index),
            )

    def check_disk(self) -> None:
        """Log an error if the held records take more than the free space."""
        self._holders = {partition for partition in self._holders if not partition.is_retired}
        held = held_bytes(self._holders)
        free = self._free_bytes() if held else 0
        if held > free:
            names = ", ".join(sorted({partition.topic for partition in self._holders})[:8])
            logger.error(
                "records that are not archived yet fill the disk: retention keeps %d B of %s for "
                "their tables, and %d B are free",
                held,
                names,
                free,
                extra=event("archive_lag_critical", bytes=held, free_bytes=free),
            )


def held_bytes(partitions: Iterable[Partition]) -> int:
    """Return the bytes that retention keeps for tables in all these partitions."""
    return sum(partition.held_bytes for partition in partitions)
