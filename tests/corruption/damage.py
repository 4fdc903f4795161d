"""Damages to a file, by chance: what devices, file systems and people do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

_BLOCK_MAX = 512


def damage(path: Path, rng: random.Random, is_harmless: Callable[[bytes], bool]) -> str:
    """Damage the file in a way that is not harmless; return a description."""
    before = path.read_bytes()
    while True:
        what, after = _damaged(before, rng)
        if after != before and not is_harmless(after):
            path.write_bytes(after)
            return what


def _damaged(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    changed = bytearray(data)
    match rng.choice(("flip", "flip", "flip", "cut", "cut", "empty", "block", "zeros")):
        case "flip":
            bit = rng.randrange(8 * len(data))
            changed[bit // 8] ^= 1 << bit % 8
            return f"bit {bit % 8} of byte {bit // 8} flipped", bytes(changed)
        case "cut":
            size = rng.randrange(len(data))
            return f"cut from {len(data)} to {size} bytes", data[:size]
        case "empty":
            return "emptied", b""
        case "block":
            size = min(rng.randrange(1, _BLOCK_MAX), len(data))
            start = rng.randrange(len(data) - size + 1)
            changed[start : start + size] = bytes(size)
            return f"{size} bytes from {start} on zeroed", bytes(changed)
        case _:
            return "zeroed", bytes(len(data))
