"""A consumer without a group: reads its partitions from beginning to end, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.testing.simulation.checkers.laws import Law
from lakelog.testing.simulation.checkers.observations import Place
from lakelog.testing.simulation.clients.client import RETRIABLE, Client
from lakelog.testing.simulation.clients.consumers.lookups import look_up_epoch, look_up_time
from lakelog.testing.simulation.clients.consumers.reading import (
    EARLIEST,
    FETCH_VERSION,
    LATEST,
    fetch_request,
    is_damaged,
    list_offset,
    read_piece,
)
from lakelog.testing.simulation.network.connection import NoResponse

if TYPE_CHECKING:
    from lakelog.testing.simulation.clients.context import ClientContext

_AGAIN = 0.03
"""Chance to begin again somewhere: what was read before must be the same."""


_LOOK_UP = 0.08
_ON_THE_WAY_S = 0.3
"""For a request, its answer and what a broker has to do for it, when nothing disturbs it."""
_THREADS = 6
"""How often a fetch may have to wait for a thread, before it begins and until it is told."""


class Consumer(Client):
    """`committed`: of committed records only."""

    def __init__(
        self, context: ClientContext, name: str, places: list[Place], *, committed: bool
    ) -> None:
        super().__init__(context, name)
        self._places = places
        self._committed = committed
        self._positions = dict.fromkeys(places, 0)

    def replaced(self) -> Consumer:
        return Consumer(self.context, self.next_name, self._places, committed=self._committed)

    async def run(self) -> None:
        while not self.conditions.is_ending:
            await self.pause(0.0, 0.5)
            await self._fetch(self.some_place(self._places))
            if self.rng.random() < _LOOK_UP:
                look_up = self.rng.choice((look_up_time, look_up_epoch))
                await look_up(self, self.some_place(self._places))

    async def _fetch(self, place: Place) -> None:
        at = self._positions[place]
        if self.rng.random() < _AGAIN:
            at = self.rng.randint(0, at)
        max_bytes, max_wait_ms = (
            self.rng.choice((1, 200, 1_000, 1 << 20)),
            self.rng.choice((0, 50, 500)),
        )
        request = fetch_request(
            place, at, committed=self._committed, max_bytes=max_bytes, max_wait_ms=max_wait_ms
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
            f"{self.name}: a fetch that may wait {max_wait_ms} ms has taken {took_s} s",
        )
        await self.take(place, at, answer)

    async def take(self, place: Place, at: int, answer: Any) -> None:
        """What was told of one partition, of which the records from `at` on were asked for."""
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._find(place, at)
        elif answer.error_code == 0:
            piece = read_piece(self.history, place, at, answer, committed=self._committed)
            for offset, value in piece.values:
                self.history.read(place, offset, value, committed=self._committed)
            self.note("fetched", place, piece.next_offset)
            self._positions[place] = piece.next_offset
        elif answer.error_code == ErrorCode.CORRUPT_MESSAGE and is_damaged(self, place, at):
            self._positions[place] = at + 1
        elif answer.error_code not in RETRIABLE:
            self.unexpected(f"Fetch of {place} at {at}", answer.error_code)

    async def _find(self, place: Place, at: int) -> None:
        """The log has begun later meanwhile, or has lost its end."""
        start = await list_offset(self, place, EARLIEST, committed=False)
        end = await list_offset(self, place, LATEST, committed=False)
        was_cut = self.history.partition(place).cuts > 0
        if start <= at <= end and not was_cut:
            self.findings.violation(
                Law.OUT_OF_RANGE, f"{place}: {at} is out of range in {start} to {end}"
            )
        self.history.begins(place, start)
        if at > end and not was_cut:
            self.findings.violation(Law.END_KEPT, f"{place} ends at {end}, where {at} had been")
        self._positions[place] = min(max(at, start), end)
