from __future__ import annotations

import pytest

from lakelog.cli.commands.consume import parse_topic, select, waiting_note
from lakelog.cli.failures import CliError
from lakelog.cli.main import run
from lakelog.cli.positions import Anchor, Position

_KEY = ("orders", 0)


def test_a_waiting_user_is_shown_topic_and_position() -> None:
    end, keys = Position(Anchor.END), [("demo", 0), ("demo", 1), ("demo", 2)]
    assert waiting_note(["demo"], keys, end, None) == (
        "waiting for new records in 'demo' (3 partitions, from the end); "
        "use -o start to read from the beginning"
    )
    assert waiting_note(["demo"], keys[:1], Position(Anchor.START), None) == (
        "no more records in 'demo' (1 partition); waiting for new ones, ^C ends"
    )
    assert "group 'g'; use -o start" in waiting_note(["demo"], keys, end, "g")


@pytest.mark.parametrize(
    "options",
    [
        ["-o", "middle"],
        ["-o", "5", "--from-beginning"],
        ["-e", "--follow"],
        ["-f", "%q"],
        ["-n", "-1"],
        ["-g", "g", "-p", "0"],
        ["-g", "g", "-o", "42"],
        ["-g", "g", "-o", "-5"],
        ["--timeout", "soon"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_connecting(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["consume", "orders", "-b", "127.0.0.1:1", *options]) == 2
    assert "error[LL0902]" in capsys.readouterr().err


def test_topics_are_names_and_patterns() -> None:
    known = ["orders-eu", "orders-us", "sales"]
    wanted = [parse_topic(text) for text in ("sales", "/orders-.*/", "orders-us", "/s.*/")]
    assert select(wanted, known) == ["sales", "orders-eu", "orders-us"]
    assert select([parse_topic("missing")], known) == ["missing"], "a broker names the error"
    assert [parse_topic(text) for text in ("/", "//", "/x")] == ["/", "//", "/x"]
    with pytest.raises(CliError, match="no topic matches /orders/"):
        select([parse_topic("/orders/")], known)
    with pytest.raises(CliError, match="is not a regular expression: missing"):
        parse_topic("/(/")


def test_many_topics_are_not_all_named() -> None:
    note = waiting_note(["a", "b", "c", "d"], [("a", 0)], Position(Anchor.END), None)
    assert note.startswith("waiting for new records in 'a', 'b', 'c', ... (1 partition")
