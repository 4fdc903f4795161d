"""The features of the cluster as ApiVersions tells them (KIP-584).

`transaction.version` is the one that producers look at: finalized at 2, they leave it to the broker
to add partitions, and are given a new epoch with each transaction (KIP-890). `group.version` 1 is
KIP-848.
"""

from __future__ import annotations

from lakelog.protocol.api_versions import FinalizedFeatureKey, SupportedFeatureKey

_LEVELS = {"group.version": (0, 1), "transaction.version": (0, 2)}
_MIN_OF_0_SINCE = 4
"""Older clients fail on a feature whose lowest level is 0 (KAFKA-17011)."""


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """`version` is that of ApiVersions."""
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in _LEVELS.items()
        if lowest > 0 or version >= _MIN_OF_0_SINCE
    ]


def finalized_features() -> list[FinalizedFeatureKey]:
    """Every feature at its highest level."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=highest, min_version_level=highest)
        for name, (_, highest) in _LEVELS.items()
    ]
