"""The plan of `lakelog group reset`: partitions and their new offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakelog.cli.failures import CliError
from lakelog.cli.positions import (
    Bounds,
    Position,
    TopicPartition,
    before_start,
    check_reached,
    resolve_position,
)
from lakelog.cli.render import Document, Listing

if TYPE_CHECKING:
    from lakelog.client.admin import Admin

_PLAN_COLUMNS = ("topic", "partition", "committed_offset", "new_offset", "change")


def existing(admin: Admin, keys: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the existing partitions in order.

    Raises `KafkaError`.
    """
    topics = {topic.name: len(topic.partitions) for topic in admin.topics.list(internal=True)}
    return sorted({(name, number) for name, number in keys if number < topics.get(name, 0)})


def chosen(
    admin: Admin, topics: Sequence[str], committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions of `topics` (NAME or NAME:0,2), or all with committed offsets.

    Raises `CliError` for a missing partition.
    """
    if not topics:
        return existing(admin, committed)
    keys: dict[TopicPartition, None] = {}
    for text in topics:
        name, numbers = parse_partitions(text)
        partitions = [row.partition for row in admin.topics.describe(name).partitions]
        for number in numbers or partitions:
            if number not in partitions:
                raise CliError("LL0104", f"topic '{name}' has no partition {number}")
            keys[name, number] = None
    return list(keys)


def parse_partitions(text: str) -> tuple[str, list[int]]:
    """Return topic and partitions of NAME:0,2; NAME alone has no partitions listed.

    Raises `CliError` LL0902 for any other text.
    """
    name, separator, numbers = text.partition(":")
    if not separator:
        return name, []
    parts = numbers.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise CliError("LL0902", f"--topic {text} is neither NAME nor NAME:0,2")
    return name, [int(part) for part in parts]


def shifted(
    bounds: Mapping[TopicPartition, Bounds], committed: Mapping[TopicPartition, int], by: int
) -> dict[TopicPartition, int]:
    """Return committed offsets moved by a number, within the log.

    `by` may be negative; offsets are limited to the log's start and end.
    """
    return {
        key: max(limits.start, min(limits.end, committed[key] + by))
        for key, limits in bounds.items()
        if key in committed
    }


def plan(
    group: str,
    committed: Mapping[TopicPartition, int],
    targets: Mapping[TopicPartition, int],
    *,
    executed: bool,
) -> Document:
    """Return the rows of a plan: present and new offset of each partition."""
    rows = [
        {
            "topic": key[0],
            "partition": key[1],
            "committed_offset": committed.get(key),
            "new_offset": offset,
            "change": offset - committed[key] if key in committed else None,
        }
        for key, offset in sorted(targets.items())
    ]
    data = {"group": group, "executed": executed, "plan": rows}
    return Document(data, {"group": group, "executed": executed}, [Listing(rows, _PLAN_COLUMNS)])


def check_inside(position: Position, bounds: Mapping[TopicPartition, Bounds]) -> None:
    """Check the new offsets. Raises `OffsetOutOfRangeError` (LL0107) for one outside the log."""
    from lakelog.client.errors import OffsetOutOfRangeError

    hint = "use --topic NAME:0,2 to reset some partitions only, or --to start or --to end"
    check_reached(position, bounds, hint)
    for key in sorted(before_start(position, bounds)):
        raise OffsetOutOfRangeError(*key, position.number, *bounds[key], hint=hint)


def resolve_inside(
    admin: Admin, position: Position, bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    """Return the offset that a position selects in each partition. Raises like `check_inside`."""
    check_inside(position, bounds)
    return resolve_position(admin, position, bounds)


def cut_short(
    committed: Mapping[TopicPartition, int], targets: Mapping[TopicPartition, int], by: int
) -> list[TopicPartition]:
    """Return the partitions in which a shift is limited by the start or end of the log."""
    return [key for key, offset in sorted(targets.items()) if offset != committed[key] + by]
