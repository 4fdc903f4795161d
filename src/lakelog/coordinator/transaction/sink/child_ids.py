"""The transactional ids of a sink's children: `<sink id>/<batch>/<partition>/<attempt>`."""

from __future__ import annotations

from typing import NamedTuple

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
