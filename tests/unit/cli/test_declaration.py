from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from lakelog.cli.declaration import Argument, Command, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.main import COMMANDS, run
from lakelog.cli.options import Output
from unit.cli.command_model import commands

demo = Noun("demo")


@demo.command(
    names=Argument("Names, 100%% of them.", metavar="NAME"),
    count=Argument("How many.", "-n"),
    settings=Argument("KEY=VALUE.", "-s", "--set"),
    form="Which form.",
    all="Everything.",
)
def show(
    names: Sequence[str],
    *,
    count: int | None = None,
    settings: list[str] | None = None,
    form: Literal["a", "b"] = "a",
    all: bool = False,
    output: Output,
) -> None:
    """Show it.

    A second paragraph.
    """


SHOW = demo.commands["show"]


def parsed(line: str) -> dict[str, Any]:
    return SHOW.parse(line.split())


def refusal(line: str) -> CliError:
    with pytest.raises(CliError) as error:
        parsed(line)
    assert (error.value.code, error.value.hint) == ("LL0902", "lakelog demo show --help")
    return error.value


def test_arguments_that_are_not_given_have_the_function_s_defaults() -> None:
    assert parsed("a") == {"names": ["a"], "output": Output()}


def test_options_stand_anywhere_among_other_arguments() -> None:
    expected = {"names": ["a", "b"], "count": 3, "all": True, "output": Output(format="json")}
    for line in ("a b -n 3 --all -f json", "a -n 3 b --all -f=json", "-n3 --all -fjson a b"):
        assert parsed(line) == expected, line


def test_an_option_for_several_values_is_repeated() -> None:
    assert parsed("a --set b=1 -s c=2")["settings"] == ["b=1", "c=2"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("-- -x", ["-x"]),
        ("a -- -n", ["a", "-n"]),
        ("- -10 -1h", ["-", "-10", "-1h"]),
        ("--count 1 -- --help", ["--help"]),
    ],
)
def test_two_dashes_end_the_options_and_numbers_are_none(line: str, names: list[str]) -> None:
    assert parsed(line)["names"] == names


@pytest.mark.parametrize("value", ["-1", "--", "", "a=b"])
def test_a_value_after_an_equals_sign_is_taken_as_it_is(value: str) -> None:
    assert SHOW.parse(["a", f"--set={value}"])["settings"] == [value]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "required: NAME"),
        ("a --count", "-n/--count: expected one argument"),
        ("a --count x", "-n/--count: invalid int value: 'x'"),
        ("a --count=--", "-n/--count: invalid int value: '--'"),
        ("a --form c", "--form: invalid choice: 'c'"),
        ("a -n 1 --count 2", "-n/--count: specified multiple times"),
        ("a --coun 1", "Unknown option: --coun. Did you mean --count?"),
        ("a --all --xyzzy=1", "Unknown option: --xyzzy."),
    ],
)
def test_other_arguments_are_rejected(line: str, words: str) -> None:
    assert refusal(line).message.endswith(words) or words in refusal(line).message


def test_an_argument_too_many_is_rejected() -> None:
    command = Command("demo", lambda: None)
    with pytest.raises(CliError, match=r"^unrecognized arguments: a b$"):
        command.parse(["a", "--", "b"])


other = Noun("other")


@other.command("both", at="Where.", last="Which.", wait_s="How long.", levels="Which levels.")
def other_words(
    at: int,
    last: str = "end",
    *,
    wait_s: float,
    levels: list[int] | None = None,
) -> None:
    """Show the rest."""


def test_a_parameter_without_a_default_is_required() -> None:
    both = other.commands["both"]
    assert both.parse(["3", "--wait-s", "2"]) == {"at": 3, "wait_s": 2.0}
    given = {"at": 3, "last": "a", "wait_s": 2.0, "levels": [1, 2]}
    assert both.parse(["3", "a", "--wait-s", "2", "--levels", "1", "--levels", "2"]) == given
    for line, word in (("3", "--wait-s"), ("--wait-s 2", "AT")):
        with pytest.raises(CliError, match=f"required: {word}"):
            both.parse(line.split())


def test_the_page_of_a_command() -> None:
    assert (
        SHOW.page()
        == """\
Usage: lakelog demo show NAME [NAME...] [OPTIONS]

Show it.

A second paragraph.

Arguments:
  NAME                    Names, 100% of them.

Options:
  -n, --count N           How many.
  -s, --set SET           KEY=VALUE.
  --form a|b              Which form.
  --all                   Everything.
  -h, --help              Show this page.

Common options:
  -f, --format table|json|jsonl
                          Format of the result on stdout (default table).
"""
    )


def test_the_page_of_a_noun() -> None:
    assert (
        demo.page("Show what commands are.")
        == """\
Usage: lakelog demo COMMAND [OPTIONS]

Show what commands are.

Commands:
  show  Show it.

lakelog demo COMMAND --help shows the options of a command.
"""
    )


@pytest.mark.parametrize("words", [*COMMANDS, *commands()])
def test_each_page_fits_80_columns(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    for help_flag in ("--help", "-h"):
        assert run([*words.split(), help_flag]) == 0
        page = capsys.readouterr().out
        assert page.startswith(f"Usage: lakelog {words}")
        assert max(map(len, page.splitlines())) <= 80
