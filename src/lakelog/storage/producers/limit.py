"""Limit of the producers that all logs of a broker remember together.

Every client gets a producer id when it asks for one, and the log remembers its first batch for a
day. Without a limit a client could fill the memory with producers (KIP-936). Above the limit, the
log that remembers most forgets the producers with the oldest batches. A forgotten producer
continues like one whose state has expired (KIP-360): any sequence is accepted. Producers of
transactions are never forgotten here, because their epochs fence zombies.
"""

from __future__ import annotations

from weakref import ref

from lakelog.storage.producers.state import EXPIRATION_MS, ProducerStateTable

LIMIT = 100_000
_PART = 64
"""This fraction of the limit is freed at once, because the search for the oldest is slow."""


class ProducerLimit:
    """One for all logs; `limit` is a number of producers, `expiration_ms` that of their tables."""

    def __init__(self, limit: int = LIMIT, expiration_ms: int = EXPIRATION_MS) -> None:
        assert limit > 0
        self._limit = limit
        self._expiration_ms = expiration_ms
        self._tables: list[ref[ProducerStateTable]] = []
        self._free = 0

    def new_table(self) -> ProducerStateTable:
        """Return a table whose producers count as long as it is referenced."""
        table = ProducerStateTable(self._expiration_ms, self._note_new)
        self._tables.append(ref(table))
        return table

    def _note_new(self) -> None:
        """Count one more producer of some table."""
        self._free -= 1
        if self._free < 0:
            self._free_capacity()

    def _free_capacity(self) -> None:
        self._tables = [reference for reference in self._tables if reference() is not None]
        tables = [table for reference in self._tables if (table := reference()) is not None]
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
