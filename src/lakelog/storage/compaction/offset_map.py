"""The newest offset of each key in the part of a log that is not yet compacted.

A long key is represented by a cryptographic digest, so that no two keys can be made to collide. A
short key is kept as it is; it equals no digest, because digests are longer.
"""

from __future__ import annotations

from hashlib import blake2b

DIGEST_SIZE = 32
ENTRY_BYTES = 200
"""Upper bound of an entry's memory, while Python enlarges the hash table."""


def stored_key(key: bytes) -> bytes:
    """Return the key, or the digest that represents it in the map."""
    return key if len(key) < DIGEST_SIZE else blake2b(key, digest_size=DIGEST_SIZE).digest()


class OffsetMap:
    """Offsets by key. The batch that fills the map may exceed `size_bytes * load_factor`."""

    __slots__ = ("entries_max", "latest_offset", "offsets")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        self.entries_max = max(int(size_bytes * load_factor) // ENTRY_BYTES, 1)
        self.offsets: dict[bytes, int] = {}
        """By `stored_key`."""
        self.latest_offset = -1
        """The last offset that the map covers."""

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self.entries_max
