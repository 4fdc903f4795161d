"""Options of a query that reads: which partitions, from where to where, which columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lakelog.client.isolation import LEVELS
from lakelog.spark.options import OptionReader, parsed
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.topic.offsets import (
    Offsets,
    StreamOffset,
    TimestampsByPartition,
    parse_assign,
    parse_offsets,
    parse_point,
)


class Boundary(Enum):
    """The start or the end of every partition, as a position."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after `timestamp_ms` (milliseconds since the epoch)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time of each partition (milliseconds since the epoch)."""

    timestamps_ms: TimestampsByPartition


Position = Boundary | AtTimestamp | AtTimestamps | StreamOffset


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions to read. Exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: str
    subscription: Subscription
    starting: Position
    ending: Position
    latest_if_no_timestamp: bool = False
    offsets_per_trigger_max: int | None = None
    partitions_min: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    read_committed: bool = True
    null_timestamps: bool = False
    reads_tables: bool = True
    columns: tuple[str, ...] = ()
    client_id: str = "lakelog-spark"


NAMES = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.isolation.level",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "failOnDataLoss",
    "impossibleTimestamps",
    "archive",
    "columns",
)


def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Return the options of a query. Raises `OptionError`.

    Defaults equal the official connector's unless stated otherwise.
    """
    given = OptionReader(options, NAMES)
    if streaming:
        _refuse_endings(given)
    fallback = Boundary.LATEST if streaming else Boundary.EARLIEST
    return SourceOptions(
        bootstrap=given.required("kafka.bootstrap.servers"),
        subscription=_subscription(given),
        starting=_position(given, "starting", fallback),
        ending=_position(given, "ending", Boundary.LATEST),
        latest_if_no_timestamp=_timestamp_strategy(given),
        offsets_per_trigger_max=given.number("maxOffsetsPerTrigger", minimum=1),
        partitions_min=given.number("minPartitions", minimum=1),
        include_headers=given.flag("includeHeaders", False),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        read_committed=_read_committed(given),
        null_timestamps=_null_timestamps(given),
        reads_tables=_reads_tables(given),
        columns=_names(given.text("columns")),
        client_id=given.text("kafka.client.id", "lakelog-spark"),
    )


def _refuse_endings(given: OptionReader) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if given.has(name):
            raise OptionError(
                f"option {name!r} is supported for batch queries only: a stream has no end"
            )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _subscription(given: OptionReader) -> Subscription:
    choices = [name for name in ("subscribe", "subscribePattern", "assign") if given.has(name)]
    if len(choices) != 1:
        found = f"{' and '.join(choices)} are set" if choices else "none is set"
        raise OptionError(
            f"set exactly one of 'subscribe', 'subscribePattern' and 'assign'; {found}"
        )
    value = given.required(choices[0])
    if choices[0] == "subscribe":
        return Subscription(topics=_names(value))
    if choices[0] == "subscribePattern":
        return Subscription(pattern=_pattern(choices[0], value))
    return Subscription(partitions=parsed(parse_assign, choices[0], value))


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(
            f"option {name!r}: {value!r} is not a regular expression in Python's syntax: {error}"
        ) from None
    return value


def _timestamp_strategy(given: OptionReader) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    value = given.text(name, "error").lower()
    if value not in ("error", "latest"):
        raise OptionError(f"option {name!r} must be error or latest, not {value!r}")
    return value == "latest"


def _read_committed(given: OptionReader) -> bool:
    """Return whether to skip aborted records: by default yes, unlike the official connector."""
    name = "kafka.isolation.level"
    value = given.text(name).lower() or "read_committed"
    if value not in LEVELS:
        raise OptionError(f"option {name!r} must be {' or '.join(LEVELS)}, not {value!r}")
    return LEVELS[value]


def _null_timestamps(given: OptionReader) -> bool:
    name = "impossibleTimestamps"
    value = given.text(name, "fail").lower()
    if value not in ("fail", "null"):
        raise OptionError(f"option {name!r} must be fail or null, not {value!r}")
    return value == "null"


def _reads_tables(given: OptionReader) -> bool:
    """Return whether archived offsets come from the topics' tables."""
    value = given.text("archive", "auto").lower()
    if value not in ("auto", "none"):
        raise OptionError(f"option 'archive' must be auto or none, not {value!r}")
    return value == "auto"


def _position(given: OptionReader, which: str, default: Boundary) -> Position:
    """Return a position in the official order of precedence: one timestamp, timestamps, offsets."""
    at = given.number(f"{which}Timestamp", minimum=0)
    if at is not None:
        return AtTimestamp(at)
    by_timestamp = f"{which}OffsetsByTimestamp"
    if given.has(by_timestamp):
        return AtTimestamps(parsed(parse_offsets, by_timestamp, given.text(by_timestamp)))
    name = f"{which}Offsets"
    text = given.text(name) or default.value
    if text.lower() in ("earliest", "latest"):
        boundary = Boundary(text.lower())
        if which == "ending" and boundary is Boundary.EARLIEST:
            raise OptionError("option 'endingOffsets' must be latest or JSON, not earliest")
        return boundary
    point: StreamOffset = parsed(parse_point, name, text)
    _check_specials(name, point.offsets, earliest_allowed=which == "starting")
    return point


def _check_specials(name: str, offsets: Offsets, *, earliest_allowed: bool) -> None:
    lowest = -2 if earliest_allowed else -1
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset < lowest:
                meaning = " (-2, earliest, is not an end)" if offset == -2 else ""
                raise OptionError(
                    f"option {name!r}: offset {offset} of {topic}-{partition} is not valid{meaning}"
                )
