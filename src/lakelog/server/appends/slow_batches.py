"""Checks record batches that would block the loop: many records, or much compressed data.

These are batches of Produce requests, and batches in which a timestamp is searched.

A thread decompresses, beside the loop. The walk over the records is Python: in a thread it would
hold the interpreter for milliseconds at a time. So it runs in the loop, in slices of half a
millisecond and in at most half of the loop's time (`TimeSlices`). For all connections together, two
batches are in progress at a time, since each may take 64 MiB decompressed, and sixteen that take at
most 1 MiB. They take their slices in turn, so that a small batch does not wait until large ones are
done. Waiting batches count as received and not handled (`RequestMemory.holding`).

Slices run one at a time, and the loop sleeps after them for as long as they took. Connections
therefore keep at least half of the loop, however many computations wait. The process really sleeps:
threads that sync and check need the interpreter as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from lakelog.base.config.log_config import LogConfig
from lakelog.records.batch import BatchHeader, CorruptRecord, RecordsTooLarge
from lakelog.replica.topic_rules import recompressed_slowly
from lakelog.runtime.api import Clock, Tasks
from lakelog.storage.reading.timestamps import Search, TimestampOffset, Work
from lakelog.storage.validation import (
    DECODED_BYTES_MAX,
    WalkedBatch,
    must_verify,
    needs_records,
    read_batch,
    read_records,
    walking,
)

T = TypeVar("T")
_PAUSE_S_MIN = 0.001
"""Shorter sleeps are put off: a selector rounds them up to a millisecond."""


class TimeSlices:
    """Iterations of the loop, for slices. One object for a broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._owed_s = 0.0
        """Time that slices took and the loop has not slept for."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run one slice when its turn comes; return the result of `work`, or raise its error."""
        async with self._lock:
            began = self._clock.monotonic()
            try:
                return work()
            finally:
                self._owed_s += self._clock.monotonic() - began
                # Within the lock: the pause is for all computations together, not for this one.
                await self._leave_loop()

    async def _leave_loop(self) -> None:
        pause_s = self._owed_s if self._owed_s >= _PAUSE_S_MIN else 0
        self._owed_s -= pause_s
        await asyncio.sleep(pause_s)


_LARGE_AT_A_TIME = 2
_SMALL_AT_A_TIME = 16
_SMALL_BYTES_MAX = 1 << 20
"""Bytes of a small batch, decompressed.

Required by `test_a_small_batch_does_not_wait_for_large_ones`."""
_LANE = "records"
_END = object()
"""Follows the last step of a walk."""

Step = Callable[[], Work | None]


class SlowBatches:
    """The slow batches of one broker."""

    def __init__(self, tasks: Tasks, clock: Clock) -> None:
        self._tasks = tasks
        self._time_slices = TimeSlices(clock)
        self._large = asyncio.Semaphore(_LARGE_AT_A_TIME)
        self._small = asyncio.Semaphore(_SMALL_AT_A_TIME)

    async def walked(
        self, batch: bytearray, config: LogConfig, now_ms: int, *, sampled: bool
    ) -> WalkedBatch:
        """Return the batch in a form that `Partition.append` takes without `SlowBatchError`.

        The records of a `sampled` batch are verified as in any sample. `now_ms` is in milliseconds
        since the epoch. Raises `KafkaError` for a batch that the append would reject.
        """
        header = read_batch(batch, config)
        verifies = must_verify(config, sampled=sampled)
        walks = verifies or needs_records(header.max_timestamp, config, now_ms)
        walk = partial(self._walk, batch, header, config, now_ms, verifies=verifies)
        if config.compression_type == "producer" and (
            header.codec or len(batch) <= _SMALL_BYTES_MAX
        ):
            # The decompressed size is unknown in advance: a batch that turns out to be large is
            # decompressed again among the large ones.
            with suppress(RecordsTooLarge):
                async with self._small:
                    if walks:
                        await walk(_SMALL_BYTES_MAX)
                    return _walked(batch, config)
        async with self._large:
            changed = await self._tasks.offload(
                _LANE, lambda: recompressed_slowly(batch, header, config)
            )
            if walks:
                await walk(DECODED_BYTES_MAX)
            return _walked(changed, config)

    async def _walk(
        self,
        batch: bytearray,
        header: BatchHeader,
        config: LogConfig,
        now_ms: int,
        bytes_max: int,
        *,
        verifies: bool,
    ) -> None:
        """Raises `RecordsTooLarge` and `KafkaError` as `read_records` and `walking` do."""
        data = await self._tasks.offload(
            _LANE, lambda: read_records(batch, header, config, bytes_max)
        )
        walk = walking(data, header, config, now_ms, verifies=verifies)
        while await self._time_slices.run(partial(next, walk, _END)) is not _END:
            pass

    async def find(self, search: Search) -> TimestampOffset | None:
        """Return the first record at or after the time searched, None if there is none.

        Raises the errors of the search (`Partition.at_time`).
        """
        work = _advance(partial(next, search))
        if isinstance(work, _Answer):
            return work.position
        async with self._large:
            while not isinstance(work, _Answer):
                step = partial(next, search) if work is None else await self._sending(search, work)
                work = await self._time_slices.run(partial(_advance, step))
        return work.position

    async def _sending(self, search: Search, work: Work) -> Step:
        """Run the work of a search in a thread; return the step that takes its result."""
        try:
            records = await self._tasks.offload(_LANE, work)
        except CorruptRecord as error:
            return partial(search.throw, error)
        return partial(search.send, records)


def _walked(batch: bytearray, config: LogConfig) -> WalkedBatch:
    walked = WalkedBatch(batch)
    walked.config = config
    return walked


class _Answer(NamedTuple):
    """The end of a search."""

    position: TimestampOffset | None


def _advance(step: Step) -> Work | _Answer | None:
    try:
        return step()
    except StopIteration as stop:
        return _Answer(stop.value)
