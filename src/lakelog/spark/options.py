"""Options of the source and of the sink, in the names of Spark's official Kafka connector.

Spark hands option names over in lower case, so everything here compares in lower case and speaks
in the documented spelling. An option that would silently change what is read is refused; options
that only tune the official connector's consumer are accepted and have no effect.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from lakelog.client.isolation import LEVELS
from lakelog.spark.errors import OptionError
from lakelog.spark.offsets import (
    Offsets,
    StreamOffset,
    TimestampsByPartition,
    parse_assign,
    parse_offsets,
    parse_point,
)

T = TypeVar("T")


class Boundary(Enum):
    """A starting or ending position that names no offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after `timestamp_ms` (milliseconds since the epoch)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The same, partition by partition."""

    timestamps_ms: TimestampsByPartition


Position = Boundary | AtTimestamp | AtTimestamps | StreamOffset


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions to read. Exactly one of the three is given."""

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
    columns: tuple[str, ...] = ()
    client_id: str = "lakelog-spark"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: str
    topic: str | None = None
    compression: str = "none"
    acks: int = -1
    request_bytes_max: int = 1 << 20
    client_id: str = "lakelog-spark"


SOURCE_NAMES = (
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
    "columns",
)
SINK_NAMES = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.acks",
    "kafka.compression.type",
    "kafka.max.request.size",
    "topic",
    "includeHeaders",
)

_TUNING = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafka.batch.size",
        "kafka.buffer.memory",
        "kafka.check.crcs",
        "kafka.client.dns.lookup",
        "kafka.client.rack",
        "kafka.connections.max.idle.ms",
        "kafka.default.api.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.enable.idempotence",
        "kafka.fetch.max.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.min.bytes",
        "kafka.heartbeat.interval.ms",
        "kafka.isolation.level",
        "kafka.linger.ms",
        "kafka.max.block.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.partition.fetch.bytes",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.max.age.ms",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.request.timeout.ms",
        "kafka.retries",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
        "kafkaconsumer.polltimeoutms",
    }
)
_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})


@dataclass(slots=True)
class _Reader:
    """Typed access to a mapping of options, with errors that name the option."""

    values: Mapping[str, str]
    names: tuple[str, ...]
    _by_name: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {name.lower(): value for name, value in self.values.items()}
        known = {name.lower(): name for name in self.names}
        for name in self._by_name:
            if name not in known and name not in _TUNING and name not in _SPARK_OWN:
                raise OptionError(_unknown(name, known))

    def text(self, name: str, default: str = "") -> str:
        return self._by_name.get(name.lower(), default).strip()

    def has(self, name: str) -> bool:
        return name.lower() in self._by_name

    def required(self, name: str) -> str:
        if not self.text(name):
            raise OptionError(f"option {name!r} is required")
        return self.text(name)

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower() or str(default).lower()
        if text not in ("true", "false"):
            raise OptionError(f"option {name!r} must be true or false, not {text!r}")
        return text == "true"

    def number(self, name: str, *, minimum: int) -> int | None:
        if not self.has(name):
            return None
        try:
            value = int(self.text(name))
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise OptionError(
                f"option {name!r} must be a whole number of at least {minimum}, "
                f"not {self.text(name)!r}"
            )
        return value


def _unknown(name: str, known: Mapping[str, str]) -> str:
    if name.startswith(("kafka.sasl.", "kafka.ssl.", "kafka.security.")):
        return f"option {name!r}: only unencrypted, unauthenticated listeners are supported"
    if name == "path":
        return "load() and start() take no path: name topics with the options of the connector"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"; did you mean {known[close[0]]!r}?" if close else ""
    return f"unknown option {name!r}{hint}"


def parse_source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises `OptionError`. Defaults are the official connector's."""
    given = _Reader(options, SOURCE_NAMES)
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
        columns=_names(given.text("columns")),
        client_id=given.text("kafka.client.id", "lakelog-spark"),
    )


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises `OptionError`."""
    given = _Reader(options, SINK_NAMES)
    acks = given.text("kafka.acks", "all")
    if acks not in ("all", "-1", "1"):
        raise OptionError(f"option 'kafka.acks' must be all, -1 or 1, not {acks!r}")
    return SinkOptions(
        bootstrap=given.required("kafka.bootstrap.servers"),
        topic=given.text("topic") or None,
        compression=given.text("kafka.compression.type", "none"),
        acks=1 if acks == "1" else -1,
        request_bytes_max=given.number("kafka.max.request.size", minimum=1024) or 1 << 20,
        client_id=given.text("kafka.client.id", "lakelog-spark"),
    )


def _refuse_endings(given: _Reader) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if given.has(name):
            raise OptionError(f"option {name!r} is for batch queries: a stream has no end")


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _subscription(given: _Reader) -> Subscription:
    choices = [name for name in ("subscribe", "subscribePattern", "assign") if given.has(name)]
    if len(choices) != 1:
        found = f"{' and '.join(choices)} are given" if choices else "none is given"
        raise OptionError(
            f"exactly one of 'subscribe', 'subscribePattern' and 'assign' is needed: {found}"
        )
    value = given.required(choices[0])
    if choices[0] == "subscribe":
        return Subscription(topics=_names(value))
    if choices[0] == "subscribePattern":
        return Subscription(pattern=_pattern(choices[0], value))
    return Subscription(partitions=_parsed(parse_assign, choices[0], value))


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise OptionError(
            f"option {name!r}: {value!r} is no regular expression of Python's: {error}"
        ) from None
    return value


def _timestamp_strategy(given: _Reader) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    value = given.text(name, "error").lower()
    if value not in ("error", "latest"):
        raise OptionError(f"option {name!r} must be error or latest, not {value!r}")
    return value == "latest"


def _read_committed(given: _Reader) -> bool:
    """Unlike the official connector's, the default shows no record that was aborted."""
    name = "kafka.isolation.level"
    value = given.text(name).lower() or "read_committed"
    if value not in LEVELS:
        raise OptionError(f"option {name!r} must be {' or '.join(LEVELS)}, not {value!r}")
    return LEVELS[value]


def _null_timestamps(given: _Reader) -> bool:
    name = "impossibleTimestamps"
    value = given.text(name, "fail").lower()
    if value not in ("fail", "null"):
        raise OptionError(f"option {name!r} must be fail or null, not {value!r}")
    return value == "null"


def _position(given: _Reader, which: str, default: Boundary) -> Position:
    """The official order of precedence: one timestamp, timestamps, offsets."""
    at = given.number(f"{which}Timestamp", minimum=0)
    if at is not None:
        return AtTimestamp(at)
    by_timestamp = f"{which}OffsetsByTimestamp"
    if given.has(by_timestamp):
        return AtTimestamps(_parsed(parse_offsets, by_timestamp, given.text(by_timestamp)))
    name = f"{which}Offsets"
    text = given.text(name) or default.value
    if text.lower() in ("earliest", "latest"):
        boundary = Boundary(text.lower())
        if which == "ending" and boundary is Boundary.EARLIEST:
            raise OptionError("option 'endingOffsets' must be latest or JSON, not earliest")
        return boundary
    point: StreamOffset = _parsed(parse_point, name, text)
    _check_specials(name, point.offsets, earliest_allowed=which == "starting")
    return point


def _check_specials(name: str, offsets: Offsets, *, earliest_allowed: bool) -> None:
    lowest = -2 if earliest_allowed else -1
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset < lowest:
                meaning = " (-2, earliest, makes no end)" if offset == -2 else ""
                raise OptionError(
                    f"option {name!r}: offset {offset} of {topic}-{partition} is not valid{meaning}"
                )


def _parsed(parse: Callable[[str], T], name: str, text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None
