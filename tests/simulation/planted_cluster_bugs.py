"""All planted bugs of clusters; each module plants the bugs of one part."""

from __future__ import annotations

from simulation import planted_in_availability, planted_in_relays, planted_in_replicas
from simulation.planted_in_clusters import BUGS, ClusterBug

__all__ = [
    "BUGS",
    "ClusterBug",
    "planted_in_availability",
    "planted_in_relays",
    "planted_in_replicas",
]
