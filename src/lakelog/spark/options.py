"""Options of a query, in the names of Spark's official Kafka connector.

Spark passes option names in lower case, so they are compared in lower case; errors use the
documented spelling. An option that would change which records are read is rejected unless it is
supported. Options that only tune the official connector's client are accepted and ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lakelog.tables.topic.errors import OptionError

T = TypeVar("T")

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
class OptionReader:
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
        return f"option {name!r} is not supported: listeners have no encryption or authentication"
    if name == "path":
        return "load() and start() accept no path: select topics with the connector's options"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"; did you mean {known[close[0]]!r}?" if close else ""
    return f"unknown option {name!r}{hint}"


def parsed(parse: Callable[[str], T], name: str, text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None
