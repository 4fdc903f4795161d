"""How many producers the logs of a broker remember together.

Whoever asks for a producer id gets one, and its first batch is remembered for a day: without a
bound anybody can fill the memory with producers (KIP-936). Beyond the bound those that have not
written for longest are forgotten, in the log that remembers most. A producer that is forgotten goes
on as one whose state has expired does (KIP-360): it is taken as it comes. Producers of transactions
are never forgotten here, for their epochs keep zombies out.
"""

from __future__ import annotations

from weakref import ref

from lakelog.storage.producers.state import EXPIRATION_MS, ProducerStateTable

LIMIT = 100_000
_PART = 64
"""This part of the bound is made free at once, since looking for the oldest takes a while."""


class ProducerRoom:
    """One for all logs; `limit` is a number of producers, and `expiration_ms` what a table has."""

    def __init__(self, limit: int = LIMIT, expiration_ms: int = EXPIRATION_MS) -> None:
        self._limit = limit
        self._expiration_ms = expiration_ms
        self._tables: list[ref[ProducerStateTable]] = []
        self._free = 0

    def new_table(self) -> ProducerStateTable:
        """Counts for as long as it lives."""
        table = ProducerStateTable(self._expiration_ms, self._note_new)
        self._tables.append(ref(table))
        return table

    def _note_new(self) -> None:
        """A table has one producer more."""
        self._free -= 1
        if self._free < 0:
            self._make_room()

    def _make_room(self) -> None:
        self._tables = [known for known in self._tables if known() is not None]
        tables = [table for known in self._tables if (table := known()) is not None]
        total = sum(map(len, tables))
        missing = total - self._limit
        if missing >= 0:
            missing += max(1, self._limit // _PART)
            for table in sorted(tables, key=len, reverse=True):
                if missing <= 0:
                    break
                gone = table.forget_idle(missing)
                missing -= gone
                total -= gone
        self._free = max(self._limit - total, self._limit // _PART)
