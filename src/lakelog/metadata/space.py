"""The disk space that the metadata store shares with the logs of its broker."""

from __future__ import annotations

from typing import Protocol


class Space(Protocol):
    """The space that the store shares with the logs of this broker."""

    def check_reserve(self) -> None:
        """Raise `KafkaError` while the remaining space is reserved for changes that free space."""
        ...

    def note_full(self) -> None:
        """Report a lack of space for a change."""
        ...

    async def free_reserve(self) -> bool:
        """Free the reserved space; return whether there is space now."""
        ...


class UnreservedSpace:
    """A `Space` without a reserve: there is space until a write fails."""

    def check_reserve(self) -> None:
        pass

    def note_full(self) -> None:
        pass

    async def free_reserve(self) -> bool:
        return False
