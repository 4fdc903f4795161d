"""The options of a query that writes, named as in Spark's official connector, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lakelog.records.compression import Codec
from lakelog.spark.options import OptionReader
from lakelog.tables.topic.errors import OptionError


class SinkError(Exception):
    """A batch was not written; with `delivery=exactly-once` no record of it is visible."""


class OtherQueryError(SinkError):
    """Another query, or the same query with a new checkpoint, wrote to this sink id."""


class OldGenerationError(SinkError):
    """A full refresh with a higher `sinkGeneration` replaced this query."""


class BatchOrderError(SinkError):
    """The checkpoint and the sink disagree by more than the one batch that a crash explains."""


class FencedError(SinkError):
    """Another run of the query has taken over the sink, or the batch took too long."""


class LostRecordsError(SinkError):
    """A broker lost records of the batch after it had acknowledged them."""


class RowError(SinkError):
    """A row cannot become a record."""


class RetriedTaskError(SinkError):
    """Spark ran a task twice in a batch that only allows one writer for each partition."""


class UnsupportedDeliveryError(SinkError):
    """The broker lacks the feature that `delivery=exactly-once` needs."""


class UnknownOutcomeError(SinkError):
    """The broker did not answer whether the batch is committed; the next run of it finds out."""


TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
"""The largest that brokers accept by default (`transaction.max.timeout.ms`)."""

_REQUEST_BYTES = 1 << 20
_GENERATION_MAX = (1 << 31) - 1
_ID_MAX = 128

_CODECS = [codec.name.lower() for codec in Codec]
_NAMES = (
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.acks",
    "kafka.compression.type",
    "kafka.max.request.size",
    "kafka.transaction.timeout.ms",
    "topic",
    "includeHeaders",
    "delivery",
    "sinkId",
    "sinkGeneration",
    "repeatedBatch",
    "writeId",
)


class Delivery(Enum):
    """How often a row becomes a record if Spark repeats a task or a batch."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Repeated(Enum):
    """How a repeated batch is compared with the committed batch of its number."""

    SAME_ROWS = "same-rows"
    SAME_COUNT = "same-count"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of one query. Sizes are in bytes, times in milliseconds.

    sink_id: the name under which the brokers keep the sink's progress; empty for the query's id.
    write_id: the same for one batch write; empty for none.
    """

    bootstrap: str
    topic: str | None = None
    compression: str = "none"
    acks: int = -1
    request_bytes_max: int = _REQUEST_BYTES
    client_id: str = "lakelog-spark"
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    sink_id: str = ""
    generation: int = 0
    repeated: Repeated = Repeated.SAME_ROWS
    write_id: str = ""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def parse_sink_options(
    options: Mapping[str, str], *, delivery: Delivery = Delivery.AT_LEAST_ONCE
) -> SinkOptions:
    """Return the options of a query. delivery: the default. Raises `OptionError`."""
    given = OptionReader(options, _NAMES)
    parsed = SinkOptions(
        bootstrap=given.required("kafka.bootstrap.servers"),
        topic=given.text("topic") or None,
        compression=given.choice("kafka.compression.type", _CODECS, "none"),
        acks=1 if given.choice("kafka.acks", ("all", "-1", "1")) == "1" else -1,
        request_bytes_max=given.number("kafka.max.request.size", minimum=1024) or _REQUEST_BYTES,
        client_id=given.text("kafka.client.id", "lakelog-spark"),
        delivery=Delivery(given.choice("delivery", _values(Delivery), delivery.value)),
        sink_id=_id(given, "sinkId"),
        write_id=_id(given, "writeId"),
        generation=_generation(given),
        repeated=Repeated(given.choice("repeatedBatch", _values(Repeated))),
        transaction_timeout_ms=given.number("kafka.transaction.timeout.ms", minimum=1000)
        or TRANSACTION_TIMEOUT_MS,
    )
    _check_together(parsed)
    return parsed


def _values(choices: type[Enum]) -> list[str]:
    return [choice.value for choice in choices]


def _check_together(given: SinkOptions) -> None:
    if given.delivery is Delivery.EXACTLY_ONCE:
        if given.acks != -1:
            raise OptionError("option 'delivery': exactly-once requires 'kafka.acks' all, not 1")
        return
    once = {
        "sinkId": given.sink_id,
        "sinkGeneration": given.generation,
        "repeatedBatch": given.repeated is not Repeated.SAME_ROWS,
        "writeId": given.write_id,
    }
    for name, is_set in once.items():
        if is_set:
            raise OptionError(f"option {name!r} requires the option 'delivery' to be exactly-once")


def _id(given: OptionReader, name: str) -> str:
    text = given.text(name)
    if len(text) > _ID_MAX:
        raise OptionError(
            f"option {name!r} must have at most {_ID_MAX} characters, not {len(text)}"
        )
    # A slash separates the sink from the attempts of its tasks in transactional ids, and a number
    # sign from its generation.
    if "/" in text or "#" in text or not text.isprintable():
        raise OptionError(f"option {name!r} must be printable and have no '/' or '#': {text!r}")
    return text


def _generation(given: OptionReader) -> int:
    generation = given.number("sinkGeneration", minimum=0) or 0
    if generation > _GENERATION_MAX:
        raise OptionError(f"option 'sinkGeneration' must be at most {_GENERATION_MAX}")
    return generation
