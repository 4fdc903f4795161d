"""Values that Python's parser rejects or cuts short, beside all that it reads as they are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.tables.typed.json_values import LEVELS_MAX, RawJson, Repeated, json_text, read_json

_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    _LEAVES | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@pytest.mark.long
@given(VALUES)
def test_other_values_are_as_python_reads_them(value: Any) -> None:
    text = json.dumps(value)
    assert read_json(text.encode()) == value
    assert json_text(value) == json.dumps(value, separators=(",", ":"))


@pytest.mark.long
@given(VALUES, st.integers(1, 5))
def test_a_deep_container_is_its_text(value: Any, parts: int) -> None:
    depth = parts * LEVELS_MAX
    text = '{"a":' * depth + json.dumps([value]) + "}" * depth
    found = read_json(text.encode())
    for _ in range(LEVELS_MAX):
        assert set(found) == {"a"}
        found = found["a"]
    assert found == RawJson(text[5 * LEVELS_MAX : len(text) - LEVELS_MAX])


def test_containers_of_the_greatest_depth_are_values() -> None:
    text = "[" * LEVELS_MAX + "]" * LEVELS_MAX
    assert read_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "inner", ["x", "NaN", "1,", "[1}", '"', "[" * 1000, "]" * 1000, '"a" "b"', "Infinity"]
)
@pytest.mark.parametrize("depth", [0, 1, LEVELS_MAX, 5 * LEVELS_MAX, 20 * LEVELS_MAX + 7])
def test_bad_json_is_found_at_any_depth(inner: str, depth: int) -> None:
    with pytest.raises(ValueError):
        read_json(("[" * depth + inner + "]" * depth).encode())


def test_a_bracket_in_a_string_is_no_level() -> None:
    text = json.dumps({"s": '[{"' * 200 + "\\", "n": 1})
    assert read_json(text.encode()) == json.loads(text)


def test_numbers_that_python_cannot_hold_keep_their_digits() -> None:
    digits = "1" + "0" * 5000
    found = read_json(f'{{"a": 1e400, "b": -{digits}, "c": 5, "d": {"7" * 700}}}'.encode())
    assert found == {"a": RawJson("1e400"), "b": RawJson("-" + digits), "c": 5, "d": int("7" * 700)}


def test_all_values_of_equal_names_are_kept() -> None:
    found = read_json(b'{"a": 1, "b": 2, "a": [3], "a": null}')
    assert found == {"a": [1, [3], None], "b": 2}
    assert isinstance(found["a"], Repeated)
    assert json_text(found) == '{"a":[1,[3],null],"b":2}'


def test_bytes_are_decoded_as_python_decodes_json() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert read_json('{"é": "[1"}'.encode(encoding)) == {"é": "[1"}


def test_the_time_for_an_unclosed_text_grows_with_its_length_alone() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="not closed"):
        read_json(b"[" * 5000 + b'"a\\' * 20_000)
    assert time.process_time() - began < 30
