"""The broker's topics as the group coordinator sees them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Topics(Protocol):
    """The current topics of the broker's metadata."""

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, None if it does not exist."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None if it does not exist."""
        ...

    def partition_count(self, name: str) -> int:
        """Return the number of partitions, 0 if the topic does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, in any order."""
        ...

    def version(self) -> int:
        """Return the version of the metadata, which only rises."""
        ...
