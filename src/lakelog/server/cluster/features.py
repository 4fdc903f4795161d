"""The features of the cluster in ApiVersions (KIP-584).

Producers use `transaction.version`: if it is finalized at 2, the broker adds partitions for them,
and each transaction has a new epoch (KIP-890).
"""

from __future__ import annotations

from lakelog.metadata.features import SUPPORTED
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.api_versions import FinalizedFeatureKey, SupportedFeatureKey

_MIN_OF_0_SINCE = 4
"""Older clients fail on a feature whose lowest level is 0 (KAFKA-17011)."""


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """Return the supported levels for a request to ApiVersions of `version`."""
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, lowest, highest in SUPPORTED
        if lowest > 0 or version >= _MIN_OF_0_SINCE
    ]


def finalized_features(image: MetadataImage) -> list[FinalizedFeatureKey]:
    """Return every feature above level 0, which stands for its absence."""
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(image.feature_levels.items())
        if level > 0
    ]
