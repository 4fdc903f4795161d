"""Snapshots of the metadata image, so that a start replays few entries.

A snapshot is due when replaying the entries since the last one costs more than loading a snapshot.
One is written at a time, beside the event loop.
"""

from __future__ import annotations

import logging
from typing import Any

from lakelog.base.events import event
from lakelog.metadata.errors import MetadataError, MetadataFull
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import OF_MANY_PARTITIONS, Record, encode_records
from lakelog.metadata.store.api import MetadataStore, Snapshot, Space
from lakelog.runtime.api import Tasks

_logger = logging.getLogger(__name__)
_COST_MIN = 1000
"""Cost of replay, in records, below which no snapshot is due."""


class Snapshots:
    """Counts the cost of replay and writes snapshots of one broker's image into the store."""

    def __init__(self, store: MetadataStore, tasks: Tasks, space: Space) -> None:
        self._store = store
        self._tasks = tasks
        self._space = space
        self._replay_cost = 0
        self._writing: Any = None

    def note_loaded(self) -> None:
        """Restart the count: a snapshot replaced the image."""
        self._replay_cost = 0

    def note_replayed(self, records: tuple[Record, ...], image: MetadataImage) -> None:
        """Count records whose replay resulted in `image`."""
        self._replay_cost += sum(_cost(record, image) for record in records)

    def write_if_due(self, image: MetadataImage) -> None:
        """Begin to write a snapshot of `image` if one is due and none is being written."""
        snapshot_cost = image.partition_count + len(image.topics_by_id)
        if self._replay_cost < max(_COST_MIN, 2 * snapshot_cost):
            return
        if self._writing is None or self._writing.done():
            # Reset before the write ends: a failing store must not get a snapshot with every entry.
            self._replay_cost = 0
            self._writing = self._tasks.spawn(self._write(image), name="metadata-snapshot")

    async def close(self) -> None:
        """Wait until a snapshot that is being written is done."""
        if self._writing is not None:
            await self._writing

    async def _write(self, image: MetadataImage) -> None:
        """Write a snapshot. A failure is only logged: all entries are still in the store."""
        payload = await self._tasks.offload(
            "metadata-snapshot", lambda: encode_records(image.to_records())
        )
        try:
            await self._store.write_snapshot(Snapshot(image.end, payload))
        except MetadataFull:
            self._space.note_full()
        except MetadataError as error:
            _logger.warning(
                "metadata snapshot not written: %s", error, extra=event("metadata_snapshot_failed")
            )


def _cost(record: Record, image: MetadataImage) -> int:
    """Return the cost of replaying a record, in partitions touched."""
    return 1 + image.partition_count if isinstance(record, OF_MANY_PARTITIONS) else 1
