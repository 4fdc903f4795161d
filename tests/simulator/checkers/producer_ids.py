"""The history of producer ids: the ids and epochs that brokers assigned, and to which clients."""

from __future__ import annotations

from collections.abc import Collection

from lakelog.coordinator.transaction import state
from simulator.conditions import Conditions

_TRANSACTIONS_MAX = 10_000
"""More than any client ends: only tests with few epochs per producer id use them up."""
_LOSING = frozenset({"disk error", "disk full", "flipped bit", "flipped record"})
"""Faults after which a broker may distrust its page cache, or find less in its logs."""


class ProducerIds:
    """All brokers of a world; brokers with metadata of their own assign ids of their own."""

    def __init__(self, conditions: Conditions, faults: Collection[str]) -> None:
        self._conditions = conditions
        self._faults = faults
        self.assigned: set[tuple[str, int, int]] = set()
        """Broker name, producer id and epoch."""
        self._transactional: dict[tuple[str, str], tuple[int, float]] = {}
        """Producer id by broker and transactional id, and when it was last requested."""
        self._lost_at: dict[str, float] = {}

    def note_loss(self, broker: str, now: float) -> None:
        """Record that a broker lost its page cache, or died before it had loaded all its logs."""
        self._lost_at[broker] = now

    def is_new(self, broker: str, producer_id: int, epoch: int) -> bool:
        """Record an assigned id and epoch; return whether the broker assigns them first now."""
        is_new = (broker, producer_id, epoch) not in self.assigned
        self.assigned.add((broker, producer_id, epoch))
        return is_new

    def may_have(
        self, broker: str, transactional_id: str, producer_id: int, asked_at: float
    ) -> bool:
        """Return whether a transactional id may have this producer id: its previous one.

        Another one is allowed when epochs are used up, or when the broker may have lost records of
        the assigned ids since the previous request.
        """
        key = broker, transactional_id
        before, since = self._transactional.get(key, (producer_id, asked_at))
        self._transactional[key] = producer_id, asked_at
        if before == producer_id or state.EPOCH_LAST < _TRANSACTIONS_MAX:
            return True
        conditions = self._conditions
        lost_at = max(self._lost_at.get(broker, -1.0), conditions.leapt_at, conditions.cut_at)
        return since <= lost_at or not _LOSING.isdisjoint(self._faults)
