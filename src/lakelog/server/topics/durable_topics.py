"""The topics of which this broker keeps every reported record through a power failure.

With `durability=fsync` a leader counts its own records, and a follower reports records, only after
a flush. So a power failure removes nothing that was counted, and the broker stays eligible to lead
these partitions (KIP-966, ADR 7). The file `durable-topics` in the data folder names the topics
(`lakelog.storage.marks`).

A topic is named only while the promise holds for all its partitions here. It is removed, durably,
before a weaker setting applies to the first of them. If the file can be neither replaced nor
removed, the stronger setting stays in force for them until it can. After a change to `fsync` a
topic is added once everything that was reported before the change has been flushed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from lakelog.base.events import event
from lakelog.replica.partition_registry import PartitionRegistry
from lakelog.runtime.api import Tasks
from lakelog.server.controller.membership import KeptTopics
from lakelog.storage.marks import DurableMark

logger = logging.getLogger(__name__)

_REVIEW_S = 1.0
_NAMED_MAX = 200_000
"""Largest number of topics in a registration; the request has 16 B for each."""


class DurableTopics:
    """The file of one data folder. A broker that is alone has none: nothing is elected there.

    Args:
        process: the incarnation id of this process.
    """

    def __init__(
        self, process: bytes, mark: DurableMark, partitions: PartitionRegistry, tasks: Tasks
    ) -> None:
        self._process = process
        self._mark = mark
        self._partitions = partitions
        self._tasks = tasks
        self._is_used = False
        self._named: set[bytes] = set()
        self._stored: set[bytes] = set()
        """Topics that the file may name for this process, as far as it is known."""
        self._on_withdrawn: Callable[[set[bytes]], object] = lambda topic_ids: None
        self._awaited: set[bytes] = set()
        """Topics with `fsync` whose earlier records may not be flushed yet."""
        self._writing = asyncio.Lock()
        self._review_is_due = False
        self._is_stuck = False
        """Whether the last attempt to remove the file has failed."""

    def watch_withdrawn(self, callback: Callable[[set[bytes]], object]) -> None:
        """Call `callback` with topics for which the promise has ended after all (`is_bound`)."""
        self._on_withdrawn = callback

    async def begin(self, broker_epoch: int, last_process: bytes | None) -> KeptTopics:
        """Return the topics for which the folder is complete; call it before the registration.

        broker_epoch, last_process: of the last registration of this broker. `last_process` is None
            before the first.
        """
        self._is_used = True
        try:
            mark = await self._tasks.offload("mark", self._mark.find)
        except OSError as error:
            _log_failure(self._mark, error)
            mark = None
        if mark is None or last_process not in mark.processes:
            await self._withdraw()
            return KeptTopics()
        # This process may die between its registration and the next write.
        self._named = set(mark.topic_ids)
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

    def is_bound(self, topic_id: bytes) -> bool:
        """Return whether the promise holds for a topic although it should have ended."""
        return topic_id in self._stored and topic_id not in self._named

    async def add(self, topic_ids: Iterable[bytes]) -> None:
        """Name new topics with `fsync`; call it before their partitions are served."""
        new = set(topic_ids) - self._named
        if self._is_used and new:
            self._named |= new
            await self._write()

    def await_flush(self, topic_id: bytes) -> None:
        """Name a topic once all records older than its change to `fsync` are flushed."""
        if self._is_used and topic_id not in self._named:
            self._awaited.add(topic_id)
            self._review_later()

    async def remove(self, topic_ids: Iterable[bytes]) -> None:
        """Withdraw the promise for these topics, durably; call it before a weaker setting.

        The weaker setting may not apply while the topic `is_bound`.
        """
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
        lacking = {
            partition.topic_id
            for partition in self._partitions
            if not partition.watermark.is_durable
        }
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
            named = frozenset(self._named)
            write = partial(self._mark.write, processes or (self._process,), named)
            # A failed write may have replaced the file all the same.
            self._stored |= named
            try:
                await self._tasks.offload("mark", write)
            except OSError as error:
                _log_failure(self._mark, error)
                await self._withdraw()
            else:
                self._note_stored(set(named))

    def _note_stored(self, topic_ids: set[bytes]) -> None:
        """Note the topics that the file names now, durably."""
        before = {topic_id for topic_id in self._stored if self.is_bound(topic_id)}
        self._stored = topic_ids
        if free := before - topic_ids:
            self._on_withdrawn(free)

    async def _withdraw(self) -> None:
        self._named.clear()
        try:
            await self._tasks.offload("mark", self._mark.remove)
        except OSError as error:
            if not self._is_stuck:
                logger.error(
                    "%s cannot be removed: %s; its topics keep durability=fsync until it can",
                    self._mark.path,
                    error,
                    extra=event("durable_topics_not_removed", path=self._mark.path),
                )
            self._is_stuck = True
            if self._stored:
                self._tasks.call_later(_REVIEW_S, self._try_again)
        else:
            self._is_stuck = False
            self._note_stored(set())

    def _try_again(self) -> None:
        self._tasks.spawn(self._withdraw_again(), name="withdraw durable topics")

    async def _withdraw_again(self) -> None:
        async with self._writing:
            # A write that has succeeded since has replaced the file.
            if any(map(self.is_bound, self._stored)):
                await self._withdraw()


def _log_failure(mark: DurableMark, error: OSError) -> None:
    logger.warning(
        "%s cannot be read or written: %s; a power failure will count as a loss of records",
        mark.path,
        error,
        extra=event("durable_topics_ignored", path=mark.path),
    )
