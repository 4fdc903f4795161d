"""The bytes of a file in memory, cached and durable."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakelog.runtime.api import Random

_SECTOR = 512


@dataclass(eq=False, slots=True)
class Node:
    """A file: its bytes in the page cache, its bytes on the device, and the changes between.

    A change is a write at an offset or, without content, a truncation to it.
    """

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    modified_ms: int = 0
    number: int = 0
    """Of the file on its disk; a file that replaces it has another one."""

    def copy(self, content: bytes) -> Node:
        """Return the file on another disk, with this durable content."""
        return Node(bytearray(content), content, [], self.modified_ms, self.number)

    def flip(self, bit: int) -> None:
        """Flip one bit in the page cache, on the device and in unsynced writes."""
        at, mask = bit // 8, 1 << bit % 8
        self.data[at] ^= mask
        if at < len(self.durable):
            self.durable = _flipped(self.durable, at, mask)
        for number, (offset, content) in enumerate(self.changes):
            if content is not None and offset <= at < offset + len(content):
                self.changes[number] = offset, _flipped(content, at - offset, mask)

    def after_crash(self, random: Random | None) -> Node:
        """Return the file after a power failure; `random` chooses unsynced changes that survive."""
        data = bytearray(self.durable)
        for offset, content in self.changes if random is not None else ():
            assert random is not None
            if content is not None:
                _tear(data, offset, content, random)
            elif random.below(2):
                resize(data, offset)
        return self.copy(bytes(data))


def _flipped(content: bytes, at: int, mask: int) -> bytes:
    flipped = bytearray(content)
    flipped[at] ^= mask
    return bytes(flipped)


def resize(data: bytearray, size: int) -> None:
    """Truncate, or extend with zeros, to `size` bytes.

    `data` is changed in place.
    """
    del data[size:]
    data.extend(bytes(size - len(data)))


def _tear(data: bytearray, offset: int, content: bytes, random: Random) -> None:
    """Apply a write, some of its sectors, or only the growth of the file."""
    kept = content
    match random.below(3):
        case 0:
            kept = bytes(len(content)) if random.below(2) else b""
        case 1:
            kept = content[: random.below(len(content) // _SECTOR + 1) * _SECTOR]
    if kept and len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(kept)] = kept
