from __future__ import annotations

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.positions import (
    Anchor,
    Bounds,
    Position,
    before_start,
    beyond,
    parse_position,
    resolve,
)

_NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", Position(Anchor.START)),
        ("earliest", Position(Anchor.START)),
        ("end", Position(Anchor.END)),
        ("42", Position(Anchor.OFFSET, 42)),
        ("+10", Position(Anchor.START, 10)),
        ("-10", Position(Anchor.END, 10)),
        ("@1700000000000", Position(Anchor.TIME, 1_700_000_000_000)),
        ("@-1h", Position(Anchor.TIME, _NOW_MS - 3_600_000)),
        ("@1970-01-02", Position(Anchor.TIME, 86_400_000)),
        ("@1970-01-01T01:00:00+01:00", Position(Anchor.TIME, 0)),
        ("@-100000000d", Position(Anchor.TIME, 0)),
        ("@1969-12-31T23:59:59.999Z", Position(Anchor.TIME, 0)),
    ],
)
def test_forms(text: str, position: Position) -> None:
    assert parse_position(text, _NOW_MS) == position


@pytest.mark.parametrize("text", ["", "begin", "1.5", "--1", "@", "@tomorrow", "+-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_position(text, _NOW_MS)
    assert caught.value.code == "LL0902"


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (Position(Anchor.START), {0: 5, 1: 0}),
        (Position(Anchor.END), {0: 20, 1: 3}),
        (Position(Anchor.START, 4), {0: 9, 1: 3}),
        (Position(Anchor.END, 10), {0: 10, 1: 0}),
        (Position(Anchor.OFFSET, 7), {0: 7, 1: 3}),
        (Position(Anchor.TIME, 1000), {0: 12, 1: 3}),
    ],
)
def test_offsets_stay_within_the_partition(position: Position, offsets: dict[int, int]) -> None:
    bounds = {0: Bounds(5, 20), 1: Bounds(0, 3)}
    found = {(0, 1000): 12}
    resolved = resolve(position, bounds, lambda p, at: found.get((p, at)))
    assert resolved == offsets


@pytest.mark.parametrize(
    ("position", "too_far", "too_early"),
    [
        (Position(Anchor.OFFSET, 21), {0: 21, 1: 21}, []),
        (Position(Anchor.OFFSET, 20), {1: 20}, []),
        (Position(Anchor.OFFSET, 3), {}, [0]),
        (Position(Anchor.START, 4), {1: 4}, []),
        (Position(Anchor.START, 16), {0: 21, 1: 16}, []),
        (Position(Anchor.END, 99), {}, []),
        (Position(Anchor.TIME, 99), {}, []),
    ],
)
def test_partitions_that_lack_an_offset(
    position: Position, too_far: dict[int, int], too_early: list[int]
) -> None:
    bounds = {0: Bounds(5, 20), 1: Bounds(0, 3)}
    assert beyond(position, bounds) == too_far
    assert before_start(position, bounds) == too_early
