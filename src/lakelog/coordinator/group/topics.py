"""The broker's topics as the group coordinator sees them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Topics(Protocol):
    """What the broker's metadata says of topics now."""

    def topic_id(self, name: str) -> bytes | None: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """0 if there is no such topic."""
        ...

    def names(self) -> Iterable[str]:
        """Of all topics, in any order."""
        ...

    def version(self) -> int:
        """Of the metadata; it only rises."""
        ...
