from __future__ import annotations

import pytest

from lakelog.spark.sink.options import Delivery, parse_sink_options
from lakelog.tables.topic.errors import OptionError

BASE = {"kafka.bootstrap.servers": "h:1", "checkpointLocation": "/x"}
ONCE = BASE | {"delivery": "exactly-once"}


def test_the_sink_is_idempotent_unless_acks_forbid_it() -> None:
    assert parse_sink_options(BASE | {"topic": "t"}).acks == -1
    assert parse_sink_options(BASE | {"kafka.acks": "1"}).acks == 1
    with pytest.raises(OptionError, match=r"kafka.acks"):
        parse_sink_options(BASE | {"kafka.acks": "0"})
    with pytest.raises(OptionError, match="unknown option"):
        parse_sink_options(BASE | {"subscribe": "t"})


def test_delivery_is_an_option_with_a_default() -> None:
    assert parse_sink_options(BASE).delivery is Delivery.AT_LEAST_ONCE
    assert parse_sink_options(BASE, delivery=Delivery.EXACTLY_ONCE).delivery is not (
        Delivery.AT_LEAST_ONCE
    )
    given = parse_sink_options(ONCE | {"sinkId": "a", "sinkGeneration": "3"})
    assert (given.delivery, given.sink_id, given.generation) == (Delivery.EXACTLY_ONCE, "a", 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (BASE | {"delivery": "twice"}, "must be at-least-once or exactly-once, not 'twice'"),
        (BASE | {"kafka.compression.type": "lzma"}, "none, gzip, .* or zstd, not 'lzma'"),
        (BASE | {"sinkId": "a"}, "'sinkId' requires the option 'delivery' to be exactly-once"),
        (BASE | {"sinkGeneration": "1"}, "'sinkGeneration' requires"),
        (BASE | {"repeatedBatch": "any"}, "'repeatedBatch' requires"),
        (ONCE | {"repeatedBatch": "some"}, "'repeatedBatch' must be same-rows, same-count or any"),
        (ONCE | {"kafka.acks": "1"}, "exactly-once requires 'kafka.acks' all"),
        (ONCE | {"sinkId": "a/b"}, "have no '/' or '#'"),
        (ONCE | {"sinkId": "a" * 129}, "at most 128 characters, not 129"),
        (ONCE | {"sinkGeneration": "-1"}, "'sinkGeneration' must be a whole number"),
        (ONCE | {"sinkGeneration": str(1 << 31)}, "'sinkGeneration' must be at most 2147483647"),
        (ONCE | {"kafka.transaction.timeout.ms": "9"}, "whole number of at least 1000"),
    ],
)
def test_contradictory_options_are_rejected_by_name(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_sink_options(options)
