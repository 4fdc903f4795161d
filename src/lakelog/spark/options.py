"""Options of a query, in the names of Spark's official Kafka connector.

Spark passes option names in lower case, so they are compared in lower case; errors use the
documented spelling. A query that moves from `format("kafka")` keeps its options. Options for the
connector's Java clients that change neither records nor positions are accepted and ignored. An
option that would change which records are read is rejected with the reason, unless it is
supported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lakelog.tables.topic.errors import OptionError

_PLAIN_LISTENERS = "listeners have no encryption or authentication"
_JAVA_CLASS = "it names a Java class, and lakelog reads and writes without Java clients"
_NO_MEMBER = "a query assigns its partitions itself and never joins a group"
_BINARY = "keys and values are binary columns; convert them with DataFrame functions"

_REFUSED = {
    "kafka.auto.offset.reset": (
        "a query keeps its own position. Set startingOffsets for its first start, and "
        "failOnDataLoss for offsets that no longer exist"
    ),
    "kafka.enable.auto.commit": (
        "a query commits its progress in its checkpoint. lakelog.spark.publish_progress(spark) "
        "also commits it as a consumer group"
    ),
    "kafka.group.instance.id": _NO_MEMBER,
    "kafka.interceptor.classes": _JAVA_CLASS,
    "kafka.key.deserializer": _BINARY,
    "kafka.key.serializer": _BINARY,
    "kafka.metric.reporters": _JAVA_CLASS,
    "kafka.partitioner.class": _JAVA_CLASS + ". Set the column partition",
    "kafka.transactional.id": "the sink chooses the ids of its transactions",
    "kafka.value.deserializer": _BINARY,
    "kafka.value.serializer": _BINARY,
}
_REFUSED_UNLESS = {
    "kafka.exclude.internal.topics": (
        "true",
        "a pattern never matches internal topics; name them with subscribe",
    ),
    "kafka.security.protocol": ("plaintext", _PLAIN_LISTENERS),
}
"""Options with the only value that is accepted, and the reason for refusing others."""
_REFUSED_PREFIXES = {
    "kafka.sasl.": _PLAIN_LISTENERS,
    "kafka.security.": _PLAIN_LISTENERS,
    "kafka.ssl.": _PLAIN_LISTENERS,
}

WITHOUT_EFFECT = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafka.allow.auto.create.topics",
        "kafka.auto.commit.interval.ms",
        "kafka.batch.size",
        "kafka.buffer.memory",
        "kafka.check.crcs",
        "kafka.client.dns.lookup",
        "kafka.client.rack",
        "kafka.connections.max.idle.ms",
        "kafka.default.api.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.enable.idempotence",
        "kafka.enable.metrics.push",
        "kafka.exclude.internal.topics",
        "kafka.fetch.max.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.min.bytes",
        "kafka.group.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.heartbeat.interval.ms",
        "kafka.isolation.level",
        "kafka.linger.ms",
        "kafka.max.block.ms",
        "kafka.max.in.flight.requests.per.connection",
        "kafka.max.partition.fetch.bytes",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.metadata.max.age.ms",
        "kafka.metadata.recovery.strategy",
        "kafka.metrics.num.samples",
        "kafka.metrics.recording.level",
        "kafka.metrics.sample.window.ms",
        "kafka.partition.assignment.strategy",
        "kafka.receive.buffer.bytes",
        "kafka.reconnect.backoff.max.ms",
        "kafka.reconnect.backoff.ms",
        "kafka.request.timeout.ms",
        "kafka.retries",
        "kafka.retry.backoff.max.ms",
        "kafka.retry.backoff.ms",
        "kafka.security.protocol",
        "kafka.send.buffer.bytes",
        "kafka.session.timeout.ms",
        "kafka.socket.connection.setup.timeout.max.ms",
        "kafka.socket.connection.setup.timeout.ms",
        "kafkaconsumer.polltimeoutms",
    }
)
"""Options in lower case that change neither records nor positions. The source applies some."""


def refusal(name: str, value: str) -> str:
    """Return why an option is refused, or an empty text. `name` is in lower case."""
    if name in _REFUSED_UNLESS:
        accepted, reason = _REFUSED_UNLESS[name]
        return "" if value.strip().lower() == accepted else reason
    reasons = (why for prefix, why in _REFUSED_PREFIXES.items() if name.startswith(prefix))
    return _REFUSED.get(name) or next(reasons, "")


T = TypeVar("T")

_UNITS_S = {
    **{"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0},
    **{"h": 3600.0, "d": 86400.0},
}
_DURATION = re.compile(rf"(\d{{1,15}})\s*({'|'.join(_UNITS_S)})")
_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})


@dataclass(slots=True)
class OptionReader:
    """Typed access to a mapping of options, with errors that name the option."""

    values: Mapping[str, str]
    names: tuple[str, ...]
    _by_name: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {name.lower(): value for name, value in self.values.items()}
        by_lower = {name.lower(): name for name in self.names}
        for name, value in self._by_name.items():
            if name in by_lower or name in _SPARK_OWN:
                continue
            reason = refusal(name, value)
            if reason:
                raise OptionError(f"option {name!r} is not supported: {reason}")
            if name not in WITHOUT_EFFECT:
                raise OptionError(_unknown(name, by_lower))

    def text(self, name: str, default: str = "") -> str:
        return self._by_name.get(name.lower(), default).strip()

    def has(self, name: str) -> bool:
        return name.lower() in self._by_name

    def required(self, name: str) -> str:
        if not self.text(name):
            raise OptionError(f"option {name!r} is required")
        return self.text(name)

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, choices: Sequence[str], default: str = "") -> str:
        """Return the choice, in lower case; by default the first one."""
        text = self.text(name).lower() or default or choices[0]
        if text not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise OptionError(f"option {name!r} must be {expected}, not {text!r}")
        return text

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

    def seconds(self, name: str, default_s: float) -> float:
        """Return a duration such as `500ms`, `90s`, `15m` or `1h`; without a unit it is in ms."""
        text = self.text(name)
        if not text:
            return default_s
        match = _DURATION.fullmatch(text.lower())
        if match is None:
            raise OptionError(
                f"option {name!r} must be a duration such as 500ms, 90s or 15m, not {text!r}"
            )
        return int(match[1]) * _UNITS_S[match[2]]


def _unknown(name: str, names: Mapping[str, str]) -> str:
    if name == "path":
        return "load() and start() accept no path: select topics with the connector's options"
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    hint = f"; did you mean {names[close[0]]!r}?" if close else ""
    return f"unknown option {name!r} (Spark passes names in lower case){hint}"


def parsed(parse: Callable[[str], T], name: str, text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None
