"""Parts of responses about the cluster: features, and encoded Metadata."""

from __future__ import annotations

from collections.abc import Hashable

from lakelog.metadata.features import SUPPORTED
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.connections import FinalizedFeatureKey, SupportedFeatureKey

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


_KEPT_MAX = 8


class KnownMetadata:
    """The responses of one image. A key has everything else that a response depends on."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._frames: dict[Hashable, bytes] = {}

    def find(self, image: MetadataImage, key: Hashable) -> bytes | None:
        return self._frames.get(key) if image is self._image else None

    def keep(self, image: MetadataImage, key: Hashable, frame: bytes) -> None:
        if image is not self._image or len(self._frames) >= _KEPT_MAX:
            self._image, self._frames = image, {}
        self._frames[key] = frame
