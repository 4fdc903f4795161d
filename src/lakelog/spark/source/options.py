"""Options of a query that reads: which partitions, from where to where, which columns.

They also limit how much one micro-batch of a stream reads, and how long a stream waits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from lakelog.client.consumer.fetch import LEVELS
from lakelog.client.consumer.reader import DEFAULT_FETCH_BYTES
from lakelog.spark.options import OptionReader, parsed
from lakelog.tables.topic.errors import OptionError
from lakelog.tables.topic.offsets import (
    ABOUT,
    Offsets,
    StreamOffset,
    TimestampsByPartition,
    items,
    parse_assign,
    parse_offsets,
    parse_point,
)

_DELAY_MAX_S = 15 * 60.0


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one micro-batch; `None` is no limit.

    offsets_max, bytes_max: the largest batch. offsets_min: wait for as many offsets, at most
    `delay_max_s` seconds after the last batch.
    """

    offsets_max: int | None = None
    offsets_min: int | None = None
    bytes_max: int | None = None
    delay_max_s: float = _DELAY_MAX_S

    @property
    def are_set(self) -> bool:
        return (self.offsets_max, self.offsets_min, self.bytes_max) != (None, None, None)


class Pace:
    """Delays batches that are smaller than `offsets_min`.

    As in Spark's Kafka source, the first batch after a start is not delayed. Times are seconds of
    any clock that does not go back.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._last_s: float | None = None

    def delays(self, waiting: int, now_s: float) -> bool:
        """Return whether a batch of `waiting` offsets begins later; if not, it begins now."""
        least = self._limits.offsets_min
        is_late = self._last_s is None or now_s - self._last_s >= self._limits.delay_max_s
        if least is not None and waiting < least and not is_late:
            return True
        if waiting:
            self._last_s = now_s
        return False


def waiting_offsets(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets between two points; new partitions begin at 0."""
    return sum(max(0, at - start.get(topic, {}).get(p, 0)) for (topic, p), at in items(end))


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
class ClientOptions:
    """Settings of the connections.

    fetch_bytes: limit of one response. planning_timeout_s: limit of finding topics and offsets.
    reading_timeout_s: limit of a read that makes no progress.
    """

    client_id: str = "lakelog-spark"
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    fetch_wait_ms: int = 500
    request_timeout_s: float = 30.0
    planning_timeout_s: float = 60.0
    reading_timeout_s: float = 60.0


_MEMBERS = ("bootstrap", "group", "prefix")


@dataclass(frozen=True, slots=True)
class Identity:
    """The brokers of a source, and the consumer group that shows a query's progress.

    group, prefix: the group's id, or a prefix of ids; empty by default. A listener sees the offsets
    of a source, but not its options. The source therefore adds an entry to the latest offsets that
    it reports, which Spark shows and does not store:
    `{"orders": {"0": 23}, "@": {"bootstrap": "h:9092", "group": "", "prefix": "team"}}`.
    """

    bootstrap: str = ""
    group: str = ""
    prefix: str = ""

    def add_to(self, offsets: dict[str, Any] | None) -> dict[str, Any]:
        """Return reported offsets with the entry."""
        return {**(offsets or {}), ABOUT: asdict(self)}

    @classmethod
    def of(cls, reported: str | None) -> Identity | None:
        """Return the entry in a report, or `None` for a report of another kind of source."""
        try:
            value = json.loads(reported or "")
        except ValueError:
            return None
        about = value.get(ABOUT) if isinstance(value, dict) else None
        if not isinstance(about, dict):
            return None
        return cls(**{name: str(about.get(name, "")) for name in _MEMBERS})


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of a query.

    prunes: plan with the filters of the query. Spark keeps the plan for all queries of the same
    DataFrame, so others would lack rows.
    """

    bootstrap: str
    subscription: Subscription
    starting: Position
    ending: Position
    latest_if_no_timestamp: bool = False
    limits: BatchLimits = field(default_factory=BatchLimits)
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    read_committed: bool = True
    null_timestamps: bool = False
    reads_tables: bool = True
    prunes: bool = False
    columns: tuple[str, ...] = ()
    client: ClientOptions = field(default_factory=ClientOptions)
    identity: Identity = field(default_factory=Identity)


NAMES = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.default.api.timeout.ms",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
    "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix",
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
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "impossibleTimestamps",
    "archive",
    "filterPushdown",
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
    bootstrap = given.required("kafka.bootstrap.servers")
    group, prefix = given.text("kafka.group.id"), given.text("groupIdPrefix")
    return SourceOptions(
        bootstrap=bootstrap,
        subscription=_subscription(given),
        starting=_position(given, "starting", fallback),
        ending=_position(given, "ending", Boundary.LATEST),
        latest_if_no_timestamp=given.choice(
            "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        limits=_limits(given),
        partitions_min=given.number("minPartitions", minimum=1),
        records_per_partition_max=given.number("maxRecordsPerPartition", minimum=1),
        include_headers=given.flag("includeHeaders", False),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        # Unlike the official connector, which reads aborted records by default.
        read_committed=LEVELS[given.choice("kafka.isolation.level", [*LEVELS], "read_committed")],
        null_timestamps=given.choice("impossibleTimestamps", ("fail", "null")) == "null",
        reads_tables=given.choice("archive", ("auto", "none")) == "auto",
        prunes=given.flag("filterPushdown", False),
        columns=_names(given.text("columns")),
        client=_client(given),
        identity=Identity(bootstrap, group, prefix),
    )


def _limits(given: OptionReader) -> BatchLimits:
    limits = BatchLimits(
        offsets_max=given.number("maxOffsetsPerTrigger", minimum=1),
        offsets_min=given.number("minOffsetsPerTrigger", minimum=1),
        delay_max_s=given.seconds("maxTriggerDelay", BatchLimits().delay_max_s),
        bytes_max=given.number("maxBytesPerTrigger", minimum=1),
    )
    least, most = limits.offsets_min, limits.offsets_max
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option 'minOffsetsPerTrigger' ({least}) must not be larger than "
            f"'maxOffsetsPerTrigger' ({most})"
        )
    return limits


def _client(given: OptionReader) -> ClientOptions:
    defaults = ClientOptions()
    sizes = [
        given.number(name, minimum=1)
        for name in ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes")
    ]
    wait_ms = given.number("kafka.fetch.max.wait.ms", minimum=0)
    return ClientOptions(
        client_id=given.text("kafka.client.id", defaults.client_id),
        fetch_bytes=min((size for size in sizes if size), default=defaults.fetch_bytes),
        fetch_wait_ms=defaults.fetch_wait_ms if wait_ms is None else wait_ms,
        request_timeout_s=_timeout_s(given, "kafka.request.timeout.ms", defaults.request_timeout_s),
        planning_timeout_s=_timeout_s(
            given, "kafka.default.api.timeout.ms", defaults.planning_timeout_s
        ),
        reading_timeout_s=_timeout_s(
            given, "kafkaConsumer.pollTimeoutMs", defaults.reading_timeout_s
        ),
    )


def _timeout_s(given: OptionReader, name: str, default_s: float) -> float:
    value = given.number(name, minimum=1)
    return default_s if value is None else value / 1000


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
        problem = f"{' and '.join(choices)} are set" if choices else "none is set"
        raise OptionError(
            f"set exactly one of 'subscribe', 'subscribePattern' and 'assign'; {problem}"
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
    if not text.startswith("{"):
        words = "earliest, latest" if which == "starting" else "latest"
        example = '{"topic": {"0": 5}}'
        raise OptionError(f"option {name!r} must be {words} or JSON like {example}, not {text!r}")
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
