"""A consumer without a group: it follows its partitions and sometimes reads them again."""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.consumers.lookups import look_up_epoch, look_up_time
from simulator.clients.consumers.reading import (
    EARLIEST,
    FETCH_VERSION,
    LATEST,
    check_fetched,
    fetch_request,
    is_damaged,
    list_offset,
)
from simulator.clients.context import ClientContext
from simulator.network.connection import NoResponse

_AGAIN = 0.03
"""Chance to read again from an earlier offset: the records must be the same."""
_LOOK_UP = 0.08
_ON_THE_WAY_S = 0.3
"""Seconds for a request, its response and the broker's work, without a disturbance."""
_THREADS = 6
"""How often a fetch may wait for a thread to begin, or for its result."""


class Consumer(Client):
    """`committed` is the isolation level read_committed."""

    def __init__(
        self, context: ClientContext, name: str, partitions: list[Place], *, committed: bool
    ) -> None:
        super().__init__(context, name)
        self._places = partitions
        self._committed = committed
        self._positions = dict.fromkeys(partitions, 0)

    def replaced(self) -> Consumer:
        return Consumer(self.context, self.next_name, self._places, committed=self._committed)

    async def run(self) -> None:
        while not self.conditions.is_ending:
            await self.pause(0.0, 0.5)
            await self._fetch(self.some_place(self._places))
            if self.rng.random() < _LOOK_UP:
                look_up = self.rng.choice((look_up_time, look_up_epoch))
                await look_up(self, self.some_place(self._places))

    async def _fetch(self, partition: Place) -> None:
        at = self._positions.setdefault(partition, 0)  # its topic may have grown
        if self.rng.random() < _AGAIN:
            at = self.rng.randint(0, at)
        max_bytes, max_wait_ms = (
            self.rng.choice((1, 200, 1_000, 1 << 20)),
            self.rng.choice((0, 50, 500)),
        )
        request = fetch_request(
            partition, at, committed=self._committed, max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )
        asked_at = self.now
        try:
            answer = (await self.connection.call(request, FETCH_VERSION)).responses[0].partitions[0]
        except NoResponse:
            return
        took_s = self.now - asked_at
        limit_s = max_wait_ms / 1000 + _ON_THE_WAY_S + _THREADS * self.home.thread_s_max
        self.findings.expect(
            Law.PROMPT,
            took_s < limit_s or self.conditions.was_disturbed(asked_at),
            f"{self.name}: a fetch with max_wait_ms {max_wait_ms} took {took_s} s",
        )
        await self.take(partition, at, answer)

    async def take(self, partition: Place, at: int, answer: Any) -> None:
        """Check a partition's part of a response to a fetch from offset `at`, and move on."""
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find(partition, at)
        elif answer.error_code == 0:
            fetched = check_fetched(self.history, partition, at, answer, committed=self._committed)
            for offset, value in fetched.values:
                self.history.read(partition, offset, value, committed=self._committed)
            self.note("fetched", partition, fetched.next_offset)
            self._positions[partition] = fetched.next_offset
        elif answer.error_code == ErrorCode.CORRUPT_MESSAGE and is_damaged(self, partition, at):
            self._positions[partition] = at + 1
        elif answer.error_code not in RETRIABLE:
            self.unexpected(f"Fetch of {partition} at {at}", answer.error_code)

    async def _find(self, partition: Place, at: int) -> None:
        """Find the position after OFFSET_OUT_OF_RANGE: the log start rose, or the end was lost."""
        start = await list_offset(self, partition, EARLIEST, committed=False)
        end = await list_offset(self, partition, LATEST, committed=False)
        was_cut = self.history.partition(partition).cuts > 0
        if start <= at <= end and not was_cut:
            self.findings.violation(
                Law.OUT_OF_RANGE, f"{partition}: {at} is out of range in {start} to {end}"
            )
        self.history.begins(partition, start)
        if at > end and not was_cut:
            self.findings.violation(Law.END_KEPT, f"{partition} ends at {end}, where {at} had been")
        self._positions[partition] = min(max(at, start), end)
