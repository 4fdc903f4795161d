"""Start and end offsets of partitions, and the offsets that a position selects in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lakelog.cli.positions import Anchor, Bounds, Position, beyond, resolve

if TYPE_CHECKING:
    from lakelog.client.admin import Admin

TopicPartition = tuple[str, int]


def read_bounds(
    admin: Admin, keys: Iterable[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, Bounds]:
    """Return log start and log end offsets; with `read_committed` last stable offsets.

    The end is exclusive. Raises `KafkaError`.
    """
    from lakelog.client.offsets import EARLIEST, LATEST

    wanted = list(keys)
    starts = admin.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(wanted, LATEST), read_committed=read_committed)
    return {key: Bounds(starts[key].offset, ends[key].offset) for key in wanted}


def known_bounds(admin: Admin, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Return `read_bounds` of the partitions whose leaders know them, and answer.

    A description of a topic needs no offsets. Raises `KafkaError` unless a repetition may succeed.
    """
    from lakelog.client.offsets import EARLIEST, LATEST

    starts = admin.known_offsets(dict.fromkeys(keys, EARLIEST))
    ends = admin.known_offsets(dict.fromkeys(starts, LATEST))
    return {key: Bounds(starts[key].offset, end.offset) for key, end in ends.items()}


def resolve_position(
    admin: Admin, position: Position, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """Return the offset that a position selects in each partition.

    Raises `KafkaError`.
    """
    found: dict[TopicPartition, int] = {}
    if position.anchor is Anchor.TIME:
        places = admin.list_offsets(dict.fromkeys(bounds, position.number))
        found = {key: place.offset for key, place in places.items() if place.offset >= 0}
    return resolve(position, bounds, lambda key, timestamp_ms: found.get(key))


def check_reached(
    position: Position, bounds: Mapping[TopicPartition, Bounds], hint: str = ""
) -> None:
    """Check that all partitions reach an offset, or have as many offsets as a position counts.

    Raises `OffsetOutOfRangeError` (LL0107) for the first partition that does not.
    """
    from lakelog.client.errors import OffsetOutOfRangeError

    for key, offset in sorted(beyond(position, bounds).items()):
        raise OffsetOutOfRangeError(*key, offset, *bounds[key], hint=hint)
