"""Durations, times and positions in a topic as users write them.

A position selects an offset in each partition; `lakelog group reset` checks and shifts offsets.

start  end      the log start offset, the log end offset
42              offset 42
+10  -10        10 after the start, 10 before the end
@TIME           the first record at or after a time: ISO 8601, epoch milliseconds, @-1h
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lakelog.base.config.quantities import duration_ns
from lakelog.cli.failures import CliError

if TYPE_CHECKING:
    from lakelog.client.admin import Admin


_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_EPOCH_MS = re.compile(r"\d{1,16}")


def parse_duration_s(text: str) -> float:
    """Return the seconds of `500ms`, `10s`, `1h30m`, `7d`, `2w`, or of a number of seconds.

    Raises `CliError`.
    """
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        return duration_ns(text) / 1e9
    except ValueError as error:
        reason, _, hint = str(error).partition("; ")
        raise CliError("LL0902", f"{text!r} is {reason}", hint) from error


def parse_moment_ms(text: str, now_ms: int) -> int:
    """Return milliseconds since the epoch of `now`, `-1h`, epoch milliseconds, or an ISO 8601 time.

    A time without a zone is UTC. Raises `CliError`.
    """
    text = text.strip()
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - int(parse_duration_s(text[1:]) * 1000)
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(
            "LL0902",
            f"{text!r} is not a time",
            "write 2026-01-31T09:00:00Z, epoch milliseconds, or -1h for an hour ago",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def iso_utc(timestamp_ms: int) -> str | None:
    """Return ISO 8601 in UTC with milliseconds; `None` outside the years 1 to 9999 and for -1."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


K = TypeVar("K")
_NUMBER = re.compile(r"([+-]?)(\d{1,19})")
_NAMED = {"start": "start", "earliest": "start", "beginning": "start", "end": "end"}
_NAMED["latest"] = "end"


class Anchor(Enum):
    """The reference of a position's number."""

    START = "start"
    END = "end"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A position. `number` is added to START, subtracted from END, or is an offset or time (ms)."""

    anchor: Anchor
    number: int = 0


class Bounds(NamedTuple):
    """A partition's log start offset and its log end offset (exclusive)."""

    start: int
    end: int


def parse_position(text: str, now_ms: int) -> Position:
    """Parse one of the forms above. Raises `CliError` for other texts.

    now_ms: milliseconds since the epoch, for relative times.
    """
    if text in _NAMED:
        return Position(Anchor(_NAMED[text]))
    if text.startswith("@"):
        # Negative times have meanings of their own in ListOffsets: -1 is the end.
        return Position(Anchor.TIME, max(parse_moment_ms(text[1:], now_ms), 0))
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise CliError(
            "LL0902",
            f"'{text}' is not an offset",
            "write start, end, 42, +10, -10, @2026-01-31T09:00:00Z or @-1h",
        )
    anchor = {"+": Anchor.START, "-": Anchor.END, "": Anchor.OFFSET}[match[1]]
    return Position(anchor, int(match[2]))


def resolve(
    position: Position, bounds: Mapping[K, Bounds], time_offsets: Mapping[K, int]
) -> dict[K, int]:
    """Return the offset in each partition, within its bounds.

    time_offsets: the first offset at or after the time; the end stands for partitions without one.
    """
    offsets = {}
    for partition, limits in bounds.items():
        offset = {
            Anchor.START: limits.start + position.number,
            Anchor.END: limits.end - position.number,
            Anchor.OFFSET: position.number,
            Anchor.TIME: time_offsets.get(partition, limits.end),
        }[position.anchor]
        offsets[partition] = max(limits.start, min(limits.end, offset))
    return offsets


def beyond(position: Position, bounds: Mapping[K, Bounds]) -> dict[K, int]:
    """Return the partitions that end before the offset of a position, with that offset."""
    targets = {
        partition: position.number + (limits.start if position.anchor is Anchor.START else 0)
        for partition, limits in bounds.items()
        if position.anchor in (Anchor.START, Anchor.OFFSET)
    }
    return {key: offset for key, offset in targets.items() if offset > bounds[key].end}


def before_start(position: Position, bounds: Mapping[K, Bounds]) -> list[K]:
    """Return the partitions that begin after an absolute offset."""
    if position.anchor is not Anchor.OFFSET:
        return []
    return [key for key, limits in bounds.items() if position.number < limits.start]


TopicPartition = tuple[str, int]


def read_bounds(
    admin: Admin, keys: Iterable[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, Bounds]:
    """Return log start and log end offsets; with `read_committed` last stable offsets.

    The end is exclusive. Raises `KafkaError`.
    """
    from lakelog.client.offsets import EARLIEST, LATEST

    partitions = list(keys)
    starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    return {key: Bounds(starts[key].offset, ends[key].offset) for key in partitions}


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
    offsets: dict[TopicPartition, int] = {}
    if position.anchor is Anchor.TIME:
        places = admin.list_offsets(dict.fromkeys(bounds, position.number))
        offsets = {
            key: offset_at.offset for key, offset_at in places.items() if offset_at.offset >= 0
        }
    return resolve(position, bounds, offsets)


def check_reached(
    position: Position, bounds: Mapping[TopicPartition, Bounds], hint: str = ""
) -> None:
    """Check that all partitions reach an offset, or have as many offsets as a position counts.

    Raises `OffsetOutOfRangeError` (LL0107) for the first partition that does not.
    """
    from lakelog.client.errors import OffsetOutOfRangeError

    for key, offset in sorted(beyond(position, bounds).items()):
        raise OffsetOutOfRangeError(*key, offset, *bounds[key], hint=hint)


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
