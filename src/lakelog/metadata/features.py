"""Feature levels of the cluster (KIP-584, KIP-1022): finalized, and supported by each broker.

| feature | level | effect |
| --- | --- | --- |
| group.version | 1 | consumer groups (KIP-848) |
| lakelog.metadata.version | 1 | the records of the metadata log before there were levels |
| | 2 | changes of several entries (`plan.py`), levels, and what brokers support |
| | 3 | read-only brokers (`BrokerReadOnly`) |
| | 4 | offline replicas (`PartitionRecord`) |
| lakelog.txn.set | 1 | sinks (ADR 8); clients need it supported only, not finalized |
| transaction.version | 0, 1 | producers use the classic flow of transactions |
| | 2 | each transaction has an epoch of its own (KIP-890) |

A new kind of record, or a new version of one, raises the highest `lakelog.metadata.version`. It is
written only after an operator has finalized the level, which every registered broker must support:
an older broker would stop at a record that it cannot read. `records.py` has the level of each form.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from lakelog.protocol.commit_sets import FEATURE as COMMIT_SETS

METADATA_VERSION = "lakelog.metadata.version"
TRANSACTIONS_SINCE = 2
"""The `lakelog.metadata.version` with changes of several entries."""


LEVELS_SINCE = 2
"""The `lakelog.metadata.version` with records of levels, and with the levels of each broker."""

READ_ONLY_SINCE = 3
"""The `lakelog.metadata.version` with records of brokers that cannot write."""

OFFLINE_SINCE = 4
"""The `lakelog.metadata.version` with records of replicas whose logs cannot be used."""


class SupportedLevels(NamedTuple):
    """The levels of one feature that a broker supports, inclusive."""

    name: str
    lowest: int
    highest: int


SUPPORTED = (
    SupportedLevels("group.version", 1, 1),
    SupportedLevels(METADATA_VERSION, 1, OFFLINE_SINCE),
    SupportedLevels(COMMIT_SETS, 1, 1),
    SupportedLevels("transaction.version", 0, 2),
)
"""Of this version of lakelog."""

UNDECLARED = (
    SupportedLevels("group.version", 1, 1),
    SupportedLevels(METADATA_VERSION, 1, 1),
    SupportedLevels("transaction.version", 0, 2),
)
"""Of a broker that registered without levels: an older version of lakelog."""

INITIAL: Mapping[str, int] = MappingProxyType(
    {"group.version": 1, METADATA_VERSION: 1, "transaction.version": 2}
)
"""Finalized levels of a log without records of levels."""


def unsupported(finalized: Mapping[str, int], supported: tuple[SupportedLevels, ...]) -> list[str]:
    """Return texts about the finalized levels that a broker does not support."""
    ranges = {feature.name: feature for feature in supported or UNDECLARED}
    return [
        f"{name}={level}" + (f" (supported: {levels.lowest} to {levels.highest})" if levels else "")
        for name, level in sorted(finalized.items())
        if (levels := ranges.get(name)) is None or not levels.lowest <= level <= levels.highest
    ]
