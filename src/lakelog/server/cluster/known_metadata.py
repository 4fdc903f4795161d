"""Encoded Metadata responses about all topics, kept while the image does not change.

The next request is answered with a copy, which costs the broker the same for ten topics and for ten
thousand.
"""

from __future__ import annotations

from collections.abc import Hashable

from lakelog.metadata.image import MetadataImage

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
