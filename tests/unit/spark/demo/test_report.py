"""The text of the demo's result."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from lakelog.spark.demo.report import (
    Found,
    Ledger,
    ProofError,
    Requests,
    Tally,
    _counted,
    client_address,
    print_ledgers,
    print_requests,
    read_lines,
    split_lines,
    write_generated_log,
)

GOOD = Found({0: 1500, 1: 2}, {0: 500}, {0: "a", 1: "b"})
PRODUCED = {0: 2000, 1: 2}


def text_of_ledgers(*readers: Found) -> str:
    output = io.StringIO()
    console = Console(file=output, width=120)
    named = {f"reader {number}": found for number, found in enumerate(readers)}
    print_ledgers(console, [Ledger("t", PRODUCED, {0: "a", 1: "b"}, named)])
    return output.getvalue()


def text_of_requests(requests: Requests) -> str:
    output = io.StringIO()
    console = Console(file=output, width=120)
    print_requests(console, requests)
    return output.getvalue()


def test_each_partition_has_the_sums_of_both_readers() -> None:
    text = text_of_ledgers(GOOD, GOOD)
    assert text.count("1,500 + 500") == 2
    assert "2 + 0" in text
    assert text.count("yes") == 2
    assert "NO" not in text


@pytest.mark.parametrize(
    "bad",
    [
        Found({0: 1500, 1: 2}, {0: 499}, GOOD.digests),
        Found({0: 1500, 1: 2}, {0: 500}, {0: "a", 1: "other"}),
        Found({0: 1500}, {0: 500}, GOOD.digests),
    ],
)
def test_a_partition_that_one_reader_counts_differently_is_marked(bad: Found) -> None:
    text = text_of_ledgers(GOOD, bad)
    assert (text.count("yes"), text.count("NO")) == (1, 1)


@pytest.mark.parametrize(
    ("malformed", "repeated", "line"),
    [
        (1, 2, "1,234 requests parsed, 1 malformed line kept raw, 2 repeated lines kept"),
        (0, 1, "1,234 requests parsed, 0 malformed lines kept raw, 1 repeated line kept"),
    ],
)
def test_counts_have_their_plural(malformed: int, repeated: int, line: str) -> None:
    assert line in text_of_requests(Requests(1234, malformed, repeated, [], {}))


def test_a_path_is_printed_as_it_is() -> None:
    """Paths come from clients: brackets must not become markup or end the report."""
    text = text_of_requests(Requests(1, 0, 0, [("/a[red]b[/nonsense]", 1)], {}))
    assert "/a[red]b[/nonsense]" in text


def test_errors_are_bars_by_hour_in_proportion_to_the_worst_hour() -> None:
    day = datetime(2015, 5, 17, tzinfo=UTC)
    errors = {day.replace(hour=3): 80, day.replace(hour=4): 40, day.replace(hour=5): 1}
    text = text_of_requests(Requests(1, 0, 0, [], errors))
    assert "2015-05-17 │    █▄▁" in text
    assert "121" in text


def test_a_log_without_errors_has_no_bars() -> None:
    assert "█" not in text_of_requests(Requests(1, 0, 0, [], {}))


ODD = b"a b\n\n\r\nx\x00y\n\xff\xfe\r\n" + b"z" * 1_000_000 + b"\nlast"


def test_lines_are_their_exact_bytes() -> None:
    lines = list(read_lines(io.BytesIO(ODD)))

    assert b"\n".join(lines) == ODD
    assert lines[1] == b""
    assert lines[2] == b"\r"
    assert lines[-1] == b"last"


def test_a_final_newline_ends_the_last_line() -> None:
    assert list(read_lines(io.BytesIO(b"a\nb\n"))) == [b"a", b"b"]
    assert list(read_lines(io.BytesIO(b"a\n\n"))) == [b"a", b""]
    assert list(read_lines(io.BytesIO(b""))) == []


def test_two_parts_make_the_whole() -> None:
    first, rest = split_lines(io.BytesIO(b"aaaa\nbbbb\ncccc"), 6)

    assert (list(first), list(rest)) == ([b"aaaa", b"bbbb"], [b"cccc"])


def test_the_key_is_the_first_word() -> None:
    assert client_address(b'10.0.0.1 - - [x] "GET /"') == b"10.0.0.1"
    assert client_address(b"") is None
    assert client_address(b"no-space") is None
    assert client_address(b" leading") is None
    assert client_address(b"z" * 300 + b" x") is None


def test_the_generated_log_is_the_same_each_time(tmp_path: Path) -> None:
    write_generated_log(tmp_path / "a")
    write_generated_log(tmp_path / "b")

    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert content.count(b"\n") == 10_000


def test_digests_depend_on_order_and_boundaries() -> None:
    digests = set()
    for values in ([b"a", b"b"], [b"b", b"a"], [b"ab"], [b"", b"ab"], [None, b"ab"]):
        tally = Tally()
        for value in values:
            tally.add(value)
        digests.add(tally.digest)

    assert len(digests) == 5


def test_archive_and_rest_make_one_partition() -> None:
    found = _counted([(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")], [(0, 2, b"d")])

    assert found.archived == {0: 2, 1: 1}
    assert found.live == {0: 1}


@pytest.mark.parametrize("offset", [0, 2])
def test_a_missing_or_repeated_offset_is_an_error(offset: int) -> None:
    with pytest.raises(ProofError, match=r"offset \d instead of"):
        _counted([(0, 0, b"a")], [(0, offset, b"b")])


def test_a_ledger_holds_only_if_every_reader_agrees() -> None:
    good = _counted([(0, 0, b"a")], [(0, 1, b"b")])
    changed = _counted([(0, 0, b"a")], [(0, 1, b"B")])
    short = _counted([(0, 0, b"a")], [])

    assert Ledger("t", {0: 2}, good.digests, {"x": good, "y": good}).holds(0)
    assert not Ledger("t", {0: 2}, good.digests, {"x": good, "y": changed}).holds(0)
    assert not Ledger("t", {0: 2}, good.digests, {"x": short, "y": good}).holds(0)
