"""The newest offset of each key in the part of a log that is not yet compacted.

A long key is stood in for by a digest that nobody can make two keys share; a short one is kept as
it is, which no digest equals, because digests are longer.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_SIZE = 32
ENTRY_BYTES = 200
"""What one entry takes at most, with its share of a table that is being enlarged."""


def stored_key(key: bytes) -> bytes:
    """What stands for a key in the map."""
    return key if len(key) < DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE).digest()


class OffsetMap:
    """Within `size_bytes * load_factor`, but for the keys of the batch that fills it."""

    __slots__ = ("entries_max", "latest_offset", "offsets")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        self.entries_max = max(int(size_bytes * load_factor) // ENTRY_BYTES, 1)
        self.offsets: dict[bytes, int] = {}
        """By `stored_key`."""
        self.latest_offset = -1
        """The last offset whose key, if any, is in the map."""

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self.entries_max
