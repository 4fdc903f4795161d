"""Keys of coordinators: their partitions of an internal topic, and the ids of a sink's children.

The transactional id of a child is `<sink id>/<batch>/<partition>/<attempt>`.
"""

from __future__ import annotations

from typing import NamedTuple


def java_hash(text: str) -> int:
    """Return `java.lang.String.hashCode`: over UTF-16 code units, a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(data), 2):
            value = (value * 31 + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition that coordinates `key`: its absolute Java hash modulo `partitions`.

    The hash -2^31 has no positive counterpart and counts as 0
    (`org.apache.kafka.common.utils.Utils.abs`).
    """
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


_DIGITS_MAX = 19
"""Digits of a number; 19 are enough for 64 bits."""


class ChildId(NamedTuple):
    """The parts of a child's transactional id."""

    sink_id: str
    batch: int
    partition: int
    attempt: int


def child_id(transactional_id: str) -> ChildId | None:
    """Return the parts of a child's id, or None for an id of any other form."""
    # Most ids have no slash, and this is called for each request.
    if "/" not in transactional_id:
        return None
    sink_id, *numbers = transactional_id.split("/", 4)
    if not sink_id or len(numbers) != 3 or not all(map(_is_number, numbers)):
        return None
    batch, partition, attempt = map(int, numbers)
    return ChildId(sink_id, batch, partition, attempt)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def coordinator_key(transactional_id: str) -> str:
    """Return the text whose hash chooses the coordinator: for a child, its sink's id.

    One coordinator decides about a sink and all its children, with records in one partition.
    """
    if "/" not in transactional_id:
        return transactional_id
    child = child_id(transactional_id)
    return transactional_id if child is None else child.sink_id
