"""Which records are refused because a consumer would stumble over them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted_work import lines_run
from lakelog.records.batch import CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.compression import Codec
from lakelog.records.record import decode_records, record_view
from lakelog.records.verify import STEP, Extremes, verifying
from poison import ODD, OFFSETS, REFUSED, TIMES, Poison, garbage, poisoned, sealed
from storage_kit import NOW, make_batch

UNREADABLE = {"a key length of -2", "a value length of -2", "a delta of six bytes"}


def verify(batch: bytearray, records_max: int = 1 << 20) -> tuple[Extremes, int]:
    """Return the extremes, and the number of steps."""
    header = read_header(batch)
    steps = verifying(record_view(batch, header, 1 << 26), header, records_max)
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value, number
        number += 1


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("poison", REFUSED + OFFSETS, ids=lambda poison: poison.name)
def test_what_consumers_stumble_over_is_refused(poison: Poison, codec: Codec) -> None:
    with pytest.raises(CorruptRecord):
        verify(poisoned(poison, codec))


@pytest.mark.parametrize("poison", TIMES + ODD, ids=lambda poison: poison.name)
def test_what_consumers_do_not_mind_is_taken(poison: Poison) -> None:
    batch = poisoned(poison, Codec.NONE)
    if poison.name in UNREADABLE:
        with pytest.raises(CorruptRecord):
            verify(batch)
    else:
        verify(batch)


@pytest.mark.parametrize(("name", "batch"), list(garbage()), ids=lambda value: str(value)[:24])
def test_malformed_records_are_rejected(name: str, batch: bytearray) -> None:
    with pytest.raises(CorruptRecord):
        verify(batch)


_BYTES = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3)
_RECORDS = st.lists(
    st.tuples(st.integers(-(1 << 40), 1 << 40), _BYTES, _BYTES, _HEADERS), min_size=1, max_size=80
)


@given(records=_RECORDS)
def test_built_batches_are_valid(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    builder = BatchBuilder()
    for delta, key, value, headers in records:
        builder.append(NOW + delta, key, value, headers)
    found, _ = verify(builder.build())
    times = [NOW + delta for delta, *_ in records]
    assert (found.oldest_ms, found.newest_ms) == (min(times), max(times))
    assert found.has_null_key == any(key is None for _, key, _, _ in records)


@given(
    count=st.integers(1, 70),
    at=st.integers(0, 1 << 20),
    new=st.binary(min_size=0, max_size=3),
    old=st.integers(0, 3),
    claimed=st.integers(-1, 1),
)
def test_verified_records_can_be_decoded(
    count: int, at: int, new: bytes, old: int, claimed: int
) -> None:
    """After random damage, verified records are the records that a consumer decodes."""
    payload = bytes(make_batch(count, size=2)[61:])
    at %= len(payload)
    batch = sealed(payload[:at] + new + payload[at + old :], 0, max(count + claimed, 1))
    try:
        verify(batch)
    except CorruptRecord:
        return
    records = decode_records(batch, read_header(batch), 1 << 20)
    assert [record.offset for record in records] == [*range(max(count + claimed, 1))]


def with_headers(records: int, headers: int) -> bytearray:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(NOW, b"key", b"value", [("", None)] * headers)
    return builder.build()


def steps_of(count: int) -> int:
    """Return the steps of a walk over so many records or headers."""
    return (count - 1) // STEP


def test_a_walk_is_made_in_steps_and_ends() -> None:
    batch = make_batch(8_000, size=1)
    assert verify(batch)[1] == steps_of(8_000)
    assert verify(batch, 3_000)[1] == steps_of(3_000)
    assert verify(with_headers(2, 20_000))[1] == steps_of(40_002)
    assert verify(with_headers(2, 20_000), 25_000)[1] == steps_of(25_002), "the rest is passed over"
    assert verify(with_headers(STEP, 1))[1] == steps_of(2 * STEP)


def of_long_numbers(count: int) -> bytes:
    """Records of which each number takes five bytes."""

    def long(value: int) -> bytes:
        return bytes((value << 1 >> shift & 0x7F) | 0x80 for shift in (0, 7, 14, 21)) + b"\0"

    bodies = [
        b"\0" + long(0) + long(number) + long(1) + b"k" + long(1) + b"v" + long(0)
        for number in range(count)
    ]
    return b"".join(long(len(body)) + body for body in bodies)


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_batch(10_000, size=100),
        lambda: with_headers(50, STEP - 1),
        lambda: with_headers(1, 20_000),
        lambda: sealed(of_long_numbers(5_000), Codec.NONE, 5_000),
    ],
    ids=["records", "headers of each", "headers of one", "long numbers"],
)
def test_no_step_of_a_walk_is_long(make: Callable[[], bytearray]) -> None:
    batch = make()
    header = read_header(batch)
    steps = verifying(record_view(batch, header, 1 << 26), header, 1 << 20)
    end = object()
    lines = [0]

    def step() -> None:
        ended.append(next(steps, end) is end)

    ended = [False]
    while not ended[-1]:
        lines.append(lines_run(step))
    assert len(lines) > 10
    assert max(lines) < 50 * STEP


def test_one_header_too_few_among_many_is_found() -> None:
    batch = BatchBuilder()
    batch.append(NOW, b"key", b"value", [("a", b"b")] * 3_000)
    built = batch.build()
    payload = bytearray(built[61:])
    payload[-1:] = b""
    with pytest.raises(CorruptRecord):
        verify(sealed(bytes(payload), 0, 1))
