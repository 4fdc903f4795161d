"""The topics of which this broker keeps every reported record through a power failure.

With `durability=fsync` a leader counts its own records, and a follower reports records, only after
a flush. So a power failure removes nothing that was counted, and the broker stays eligible to lead
these partitions (KIP-966, ADR 7). The file `durable-topics` in the data folder names the topics
(`lakelog.storage.folder.durable_mark`).

A topic is named only while the promise holds for all its partitions here. It is removed, durably,
before a weaker setting applies to the first of them. After a change to `fsync` it is added once
everything that was reported before the change has been flushed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from lakelog.base.events import event
from lakelog.replica.partitions import Partitions
from lakelog.runtime.api import Tasks
from lakelog.server.controller.membership import KeptTopics
from lakelog.storage.folder.durable_mark import DurableMark

logger = logging.getLogger(__name__)

_REVIEW_S = 1.0
_NAMED_MAX = 20_000
"""Largest number of topics in a registration, whose record has to fit the metadata log."""


class DurableTopics:
    """The file of one data folder. A broker that is alone has none: nothing is elected there.

    Args:
        process: the incarnation id of this process.
    """

    def __init__(
        self, process: bytes, mark: DurableMark, partitions: Partitions, tasks: Tasks
    ) -> None:
        self._process = process
        self._mark = mark
        self._partitions = partitions
        self._tasks = tasks
        self._is_used = False
        self._named: set[bytes] = set()
        self._awaited: set[bytes] = set()
        """Topics with `fsync` whose earlier records may not be flushed yet."""
        self._writing = asyncio.Lock()
        self._review_is_due = False

    async def begin(self, broker_epoch: int, last_process: bytes | None) -> KeptTopics:
        """Return the topics for which the folder is complete; call it before the registration.

        broker_epoch, last_process: of the last registration of this broker. `last_process` is None
            before the first.
        """
        self._is_used = True
        try:
            found = await self._tasks.offload("mark", self._mark.find)
        except OSError as error:
            _log_failure(self._mark, error)
            found = None
        if found is None or last_process not in found.processes:
            await self._withdraw()
            return KeptTopics()
        # This process may die between its registration and the next write.
        self._named = set(found.topic_ids)
        await self._write((last_process, self._process))
        return KeptTopics(broker_epoch, tuple(sorted(self._named)[:_NAMED_MAX]))

    async def restart(self, topic_ids: Iterable[bytes]) -> None:
        """Name exactly these topics, whose logs were opened and flushed."""
        if self._is_used:
            self._named = set(topic_ids)
            await self._write()

    def names(self, topic_id: bytes) -> bool:
        """Return whether the file names the topic."""
        return topic_id in self._named

    async def add(self, topic_id: bytes) -> None:
        """Name a new topic with `fsync`; call it before its partitions are served."""
        if self._is_used:
            self._named.add(topic_id)
            await self._write()

    def await_flush(self, topic_id: bytes) -> None:
        """Name a topic once all records older than its change to `fsync` are flushed."""
        if self._is_used and topic_id not in self._named:
            self._awaited.add(topic_id)
            self._review_later()

    async def remove(self, topic_ids: Iterable[bytes]) -> None:
        """Withdraw the promise for these topics, durably; call it before a weaker setting."""
        gone = set(topic_ids)
        self._awaited -= gone
        if not gone.isdisjoint(self._named):
            self._named -= gone
            await self._write()

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """Leave out deleted topics from the next write on; until then their names do no harm."""
        gone = set(topic_ids)
        self._awaited -= gone
        self._named -= gone

    def _review_later(self) -> None:
        if not self._review_is_due:
            self._review_is_due = True
            self._tasks.call_later(_REVIEW_S, self._review)

    def _review(self) -> None:
        self._review_is_due = False
        self._tasks.spawn(self._add_flushed(), name="name durable topics")

    async def _add_flushed(self) -> None:
        lacking = {each.topic_id for each in self._partitions if not each.watermark.is_durable}
        done = self._awaited - lacking
        self._awaited -= done
        self._named |= done
        if done:
            await self._write()
        if self._awaited:
            self._review_later()

    async def _write(self, processes: tuple[bytes, ...] = ()) -> None:
        """Write the present names; without a success the file is removed."""
        async with self._writing:
            write = partial(self._mark.write, processes or (self._process,), frozenset(self._named))
            try:
                await self._tasks.offload("mark", write)
            except OSError as error:
                _log_failure(self._mark, error)
                await self._withdraw()

    async def _withdraw(self) -> None:
        self._named.clear()
        try:
            await self._tasks.offload("mark", self._mark.remove)
        except OSError as error:
            logger.error(
                "%s cannot be removed: %s; remove it before the next start of the broker",
                self._mark.path,
                error,
                extra=event("durable_topics_not_removed", path=self._mark.path),
            )


def _log_failure(mark: DurableMark, error: OSError) -> None:
    logger.warning(
        "%s cannot be read or written: %s; a power failure will count as a loss of records",
        mark.path,
        error,
        extra=event("durable_topics_ignored", path=mark.path),
    )
