"""Unsynced changes of a file after a power failure."""

from __future__ import annotations

from doubles.disk_node import Node
from doubles.randomness import SeededRandom

SECTOR = 512
WRITTEN = b"x" * (3 * SECTOR)


def unsynced() -> Node:
    """A file whose first bytes are durable, and which was overwritten since."""
    return Node(bytearray(WRITTEN), b"old", [(0, WRITTEN)])


def test_without_randomness_only_synced_bytes_stay() -> None:
    node = unsynced().after_crash(None)
    assert bytes(node.data) == node.durable == b"old"
    assert node.changes == []


def test_an_unsynced_write_stays_whole_in_sectors_or_not() -> None:
    left = {bytes(unsynced().after_crash(SeededRandom(seed)).data) for seed in range(100)}
    assert b"old" in left
    assert WRITTEN in left
    torn = {len(data) for data in left if data == b"x" * len(data)}
    assert {SECTOR, 2 * SECTOR, 3 * SECTOR} <= torn
    assert all(len(data) in (3, *torn) for data in left)


def test_an_unsynced_truncation_stays_or_not() -> None:
    node = Node(bytearray(b"a"), b"abc", [(1, None)])
    left = {bytes(node.after_crash(SeededRandom(seed)).data) for seed in range(20)}
    assert left == {b"a", b"abc"}


def test_a_flipped_bit_is_flipped_wherever_the_byte_is_kept() -> None:
    node = unsynced()
    node.flip(8)
    assert node.data[1] == WRITTEN[1] ^ 1
    assert node.durable[1] == b"old"[1] ^ 1
    assert node.changes[0][1] is not None
    assert node.changes[0][1][1] == WRITTEN[1] ^ 1
