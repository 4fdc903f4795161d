"""Calls of small functions that are replaced by their bodies, in loops of records."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.records import record, varint, verify
from lakelog.records.batch import HEADER_SIZE, CorruptRecord, read_header
from lakelog.records.builder import BatchBuilder
from lakelog.records.flat import flat
from lakelog.storage.compaction import records
from storage_kit import NOW

LIMIT = 3


@flat
def limited(data: list[int], position: int, limit: int) -> tuple[int, int, int]:
    """Return a number of at most `limit`, the position after it, and the limit."""
    if (number := data[position]) <= limit:
        return number, position + 1, limit
    elif number < 100:
        return min(number, limit), position + 1, limit
    else:
        raise ValueError(f"{number} is above {LIMIT}")


@flat
def pair(data: list[int], position: int) -> tuple[int, int, int]:
    first, position, _ = limited(data, position, LIMIT)
    second, position, _ = limited(data, position, 50)
    return first, second, position


@flat
def sums(data: list[int]) -> list[int]:
    found, position = [], 0
    while position < len(data):
        first, second, position = pair(data, position)
        found.append(first + second)
    return found


def first(data: list[int]) -> int:
    number, _, _ = pair(data, 0)
    return number


def functions(*modules: Any) -> dict[str, Any]:
    """The flat functions of modules, by name."""
    everything = (item for module in modules for item in vars(module).items())
    return {name: value for name, value in everything if hasattr(value, "__wrapped__")}


WALKERS = functions(varint, record, verify, records)


def test_nested_calls_are_replaced() -> None:
    assert sums([1, 2, 7, 70, 3, 50]) == [3, 53, 53]
    with pytest.raises(ValueError, match="100 is above 3"):
        sums([100, 2])
    assert not {"pair", "limited"} & set(sums.__code__.co_names)


def test_no_loop_of_records_calls_a_function_of_the_layout() -> None:
    assert WALKERS.keys() > {"read_varint", "read_head", "_decode", "_walk", "_select"}
    for name, walker in WALKERS.items():
        assert not WALKERS.keys() & set(walker.__code__.co_names) - {"_skip_headers"}, name


def test_a_function_without_source_is_left_as_it_is() -> None:
    scope: dict[str, Any] = {}
    exec("def alone(data):\n    return data", scope)
    assert flat(scope["alone"]) is scope["alone"]


def test_a_global_of_another_meaning_is_noticed() -> None:
    code = first.__code__.replace(co_firstlineno=first.__code__.co_firstlineno - 1)
    with pytest.raises(AssertionError, match="LIMIT is another global here"):
        flat(FunctionType(code, {"pair": pair, "LIMIT": 4}))


def outcome(function: Callable[..., Any], *arguments: Any) -> object:
    """Return the yielded values of a function, and its result or error."""
    yielded: list[object] = []
    try:
        result = function(*arguments)
        if not isinstance(result, Generator):
            return result
        while True:
            yielded.append(next(result))
    except StopIteration as stop:
        return yielded, stop.value
    except (CorruptRecord, IndexError) as error:
        return yielded, type(error), str(error)


@given(
    count=st.integers(1, 70),
    size=st.sampled_from([0, 1, 60, 70, 9000]),
    step_ms=st.sampled_from([0, 1, -1, 100, -9000, 1 << 40]),
    at=st.integers(0, 1 << 20),
    new=st.binary(max_size=3),
    old=st.integers(0, 3),
)
def test_walkers_do_the_same_as_their_source(
    count: int, size: int, step_ms: int, at: int, new: bytes, old: int
) -> None:
    """On valid records, and after random damage."""
    builder = BatchBuilder()
    for number in range(count):
        headers = [("h", b"x"), ("", None)] if number % 3 else []
        builder.append(NOW + number * step_ms, b"k" * (number % 80) or None, b"v" * size, headers)
    batch = builder.build()
    header, content = read_header(batch), bytes(batch[HEADER_SIZE:])
    at %= len(content)
    for data in (content, content[:at] + new + content[at + old :]):
        for module in (record, verify):
            for name in {"_decode", "_walk", "_walk_heads"} & vars(module).keys():
                walker = vars(module)[name]
                arguments = (data, header, 1 << 20)[: walker.__code__.co_argcount]
                assert outcome(walker, *arguments) == outcome(walker.__wrapped__, *arguments)
        offsets: dict[bytes, int] = {}
        others: dict[bytes, int] = {}
        noted = outcome(records._note_keys, data, count, 5, 7, offsets)
        assert noted == outcome(records._note_keys.__wrapped__, data, count, 5, 7, others)  # type: ignore[attr-defined]
        assert offsets == others
        choice = (data, count, 5, offsets.get, 60, True)
        selected = outcome(records._select, *choice)
        assert selected == outcome(records._select.__wrapped__, *choice)  # type: ignore[attr-defined]
