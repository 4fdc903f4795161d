"""Batches whose records are not what their header says: what lakelog and Apache Kafka answer.

Kafka walks every batch; lakelog a sample, of which the first of a connection is one. So each comes
on a connection of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from conformance.pair import Pair
from lakelog.base.errors import ErrorCode
from lakelog.records.compression import Codec, compress
from poison import COUNT_MAX, ODD, OFFSETS, REFUSED, TIMES, garbage, poisoned, sealed
from wire_client import WireClient, create_topic, produce

pytestmark = pytest.mark.java

TOPIC = "record-batches"
NONE, INVALID, UNKNOWN = "NONE", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"
COMPRESSED = [codec.name for codec in Codec if codec]
STORED = "Kafka stores what its own clients cannot read"
INSIDE = "Kafka fails inside"


class Difference(NamedTuple):
    """Answers that differ on purpose."""

    ours: str
    kafka: str
    why: str


DIFFERENCES = {
    **{
        f"{codec} {name}": Difference(INVALID, answer, why)
        for codec in COMPRESSED
        for name, answer, why in (
            ("a length beyond the end", NONE, STORED),
            ("a longer length than the fields", UNKNOWN, INSIDE),
            *((poison.name, UNKNOWN, INSIDE) for poison in OFFSETS),
        )
    },
    **{
        f"NONE {poison.name}": Difference(INVALID, NONE, "consumers would see other offsets")
        for poison in OFFSETS
    },
    **{
        f"{codec.name} {name}": Difference(INVALID, NONE, "only -1 is null")
        for codec in Codec
        for name in ("a key length of -2", "a value length of -2")
    },
    "NONE a length that does not end": Difference(INVALID, UNKNOWN, INSIDE),
    **{
        name: Difference(INVALID, UNKNOWN, INSIDE)
        for name, _ in garbage()
        if name not in ("none garbage", "zstd without a byte")
    },
}


def _batches(now_ms: int) -> Iterator[tuple[str, bytearray]]:
    for codec in Codec:
        for poison in (*REFUSED, *OFFSETS, *TIMES, *ODD):
            yield f"{codec.name} {poison.name}", poisoned(poison, codec, now_ms=now_ms)
        payload = compress(codec, REFUSED[0].content)
        most = sealed(payload, codec, COUNT_MAX, time_ms=now_ms, max_timestamp=now_ms)
        yield f"{codec.name} most records", most
    yield from garbage()


def _answers(bootstrap: str) -> dict[str, str]:
    with WireClient(bootstrap) as client:
        create_topic(client, TOPIC)
    found = {}
    for name, batch in _batches(int(time.time() * 1000)):
        with WireClient(bootstrap) as client:
            found[name] = ErrorCode(produce(client, TOPIC, bytes(batch)).error_code).name
    return found


def test_both_refuse_what_consumers_cannot_read(pair: Pair) -> None:
    ours, kafka = _answers(pair.ours), _answers(pair.kafka)
    different = {name: (ours[name], kafka[name]) for name in ours if ours[name] != kafka[name]}
    assert different == {name: found[:2] for name, found in DIFFERENCES.items()}
    assert set(ours.values()) == {NONE, INVALID, "INVALID_TIMESTAMP"}
    assert len(ours) > 150
