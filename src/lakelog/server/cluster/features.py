"""The features of the cluster in ApiVersions (KIP-584).

Producers use `transaction.version`: if it is finalized at 2, the broker adds partitions for them,
and each transaction has a new epoch (KIP-890). `group.version` 1 is KIP-848.
"""

from __future__ import annotations

from lakelog.protocol.api_versions import FinalizedFeatureKey, SupportedFeatureKey

_LEVELS = {"group.version": (0, 1), "transaction.version": (0, 2)}
_MIN_OF_0_SINCE = 4
"""Older clients fail on a feature whose lowest level is 0 (KAFKA-17011)."""


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """Return the supported levels for a request to ApiVersions of `version`."""
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in _LEVELS.items()
        if lowest > 0 or version >= _MIN_OF_0_SINCE
    ]


def finalized_features() -> list[FinalizedFeatureKey]:
    """Return every feature at its highest level."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=highest, min_version_level=highest)
        for name, (_, highest) in _LEVELS.items()
    ]
