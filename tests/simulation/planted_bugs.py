"""All planted bugs; each module plants the bugs of one part of the broker."""

from __future__ import annotations

from simulation import (
    planted_in_durability,
    planted_in_groups,
    planted_in_logs,
    planted_in_service,
    planted_in_sinks,
    planted_in_transactions,
)
from simulation.planted_bug import BUGS, Bug

__all__ = [
    "BUGS",
    "Bug",
    "planted_in_durability",
    "planted_in_groups",
    "planted_in_logs",
    "planted_in_service",
    "planted_in_sinks",
    "planted_in_transactions",
]
