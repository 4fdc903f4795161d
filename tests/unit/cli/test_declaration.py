from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from lakelog.cli.declaration import Command, Noun, argument, flag
from lakelog.cli.failures import CliError
from lakelog.cli.main import COMMANDS, run
from lakelog.cli.options import CommandSession, Output
from unit.cli.command_model import commands

demo = Noun("demo")


@demo.command(
    argument("names", metavar="NAME", nargs="+", help="Names, 100%% of them."),
    argument("-n", "--count", type=int, help="How many."),
    argument("-s", "--set", dest="settings", action="append", help="KEY=VALUE."),
    argument("--form", choices=("a", "b"), help="Which form."),
    flag("--all", help="Everything."),
    output=Output,
)
def show(names: list[str], **values: Any) -> None:
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


@pytest.mark.parametrize("words", commands())
def test_a_declaration_has_the_parameters_of_its_function(words: str) -> None:
    command = commands()[words]
    grouped = {name for each in command.groups.values() for name in each.__dataclass_fields__}
    declared = {each.dest: each for each in command.arguments() if each.dest not in grouped}
    declared.pop("help")
    parameters = inspect.signature(command.function).parameters
    assert declared.keys() | command.groups.keys() == parameters.keys()
    hints = get_type_hints(command.function, _names(command))
    for name, each in declared.items():
        is_needed = parameters[name].default is inspect.Parameter.empty
        assert (each.required and each.nargs != "*") == is_needed, name
        assert (each.nargs == 0) == (hints[name] is bool), name
        kinds = _kinds(hints[name])
        assert set(each.choices or ()) == {value for kind in kinds for value in _values(kind)}
        assert (each.type is int) <= (int in kinds), name


def _names(command: Command) -> dict[str, Any]:
    from collections.abc import Sequence
    from pathlib import Path

    return {
        **command.function.__globals__,
        "Sequence": Sequence,
        "Path": Path,
        "Session": CommandSession,
    }


def _kinds(hint: Any) -> list[Any]:
    """The types of a hint; of a sequence or an optional value its parts."""
    if get_origin(hint) in (None, Literal):
        return [hint]
    return [kind for part in get_args(hint) for kind in _kinds(part)]


def _values(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()
