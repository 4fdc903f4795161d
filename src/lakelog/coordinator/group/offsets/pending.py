"""Offsets of open transactions.

TxnOffsetCommit writes them to the log; the transaction's commit marker makes them valid. Until then
the partition's offset is unstable (KIP-447). An offset that was committed later in the log
overtakes a pending one: it stays, whether the pending offset's transaction commits or aborts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lakelog.base.memory_budget import Account
from lakelog.coordinator.group.memory import pending_offset_bytes
from lakelog.coordinator.group.records.offset import OffsetCommitKey, OffsetRecord

OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""


@dataclass(slots=True)
class _Pending:
    record: OffsetRecord
    serial: int
    """Number that rises with the position in the log."""
    is_overtaken: bool = False


class PendingOffsets:
    """Offsets of open transactions, by producer id."""

    def __init__(self, account: Account[str]) -> None:
        self._account = account
        self._producers: dict[int, dict[OffsetKey, _Pending]] = {}
        self._keys: dict[OffsetKey, set[int]] = {}
        self._groups: Counter[str] = Counter()
        self._serial = 0

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for the partition."""
        return (group_id, topic, partition) in self._keys

    def add(self, record: OffsetRecord, producer_id: int) -> None:
        """Add an offset of a producer's open transaction."""
        key = _key(record.key)
        offsets = self._producers.setdefault(producer_id, {})
        if key not in offsets:
            self._keys.setdefault(key, set()).add(producer_id)
            self._groups[record.key.group] += 1
        else:
            self._account.add(key[0], -pending_offset_bytes(*offsets[key].record))
        self._account.add(key[0], pending_offset_bytes(*record))
        self._serial += 1
        offsets[key] = _Pending(record, self._serial)

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Return topics and partitions with pending offsets of a group."""
        return [(topic, partition) for group, topic, partition in self._keys if group == group_id]

    def overtake(self, key: OffsetCommitKey) -> None:
        """Note a later commit without a transaction; earlier pending offsets lose their effect."""
        self._overtake(_key(key), self._serial + 1)

    def _overtake(self, key: OffsetKey, serial: int) -> None:
        for producer_id in self._keys.get(key, ()):
            pending = self._producers[producer_id][key]
            pending.is_overtaken |= pending.serial < serial

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetRecord]:
        """End a producer's transaction; return the offsets that become valid."""
        applied = []
        for key, pending in self._producers.pop(producer_id, {}).items():
            self._account.add(key[0], -pending_offset_bytes(*pending.record))
            self._forget(key, producer_id)
            if commit and not pending.is_overtaken:
                applied.append(pending.record)
                # Of two transactions, the offset that is later in the log counts, not the marker.
                self._overtake(key, pending.serial)
        return applied

    def _forget(self, key: OffsetKey, producer_id: int) -> None:
        self._keys[key].discard(producer_id)
        if not self._keys[key]:
            del self._keys[key]
        self._groups[key[0]] -= 1
        if not self._groups[key[0]]:
            del self._groups[key[0]]


def _key(key: OffsetCommitKey) -> OffsetKey:
    return key.group, key.topic, key.partition
