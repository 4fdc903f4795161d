"""Writes the pages of `lakelog COMMAND --help` from the declarations of the commands.

    python -m lakelog.cli.help_writer

The pages are stored as files, because importing the argument parser and formatting with it takes
longer than the limit of 100 ms for a help page. A test fails if a page differs from its command.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from lakelog.cli.main import COMMANDS
from lakelog.cli.stored_help import FOLDER, page_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cyclopts import App
    from cyclopts.argument import Argument

_WIDTH = 80
_COLUMN = 26
_FORM = re.compile(r"[A-Z_]+(?:[=:][A-Z]+)+")
_PARAMETERS = re.compile(r"\n+Parameters\n-+\n.*", re.DOTALL)
_HELP_ROW = ("-h, --help", "Show this page.")


def pages() -> dict[str, str]:
    """Return the text of every page by its name (`stored_help.page_name`)."""
    found: dict[str, str] = {}
    for noun in COMMANDS:
        app = import_module(f"lakelog.cli.commands.{noun}").app
        commands = dict(commands_of(app))
        found[page_name(noun)] = _overview(noun, app, commands) if commands else _page(noun, app)
        for name, command in commands.items():
            found[page_name(noun, name)] = _page(f"{noun} {name}", command)
    return found


def commands_of(app: App) -> Iterator[tuple[str, App]]:
    """Return name and declaration of each command of a noun, in order of declaration."""
    for name in app:
        if not name.startswith("-"):
            yield name, app[name]


def arguments_of(app: App) -> list[Argument]:
    """Return the arguments of a command that help shows."""
    return [each for each in app.assemble_argument_collection(parse_docstring=True) if each.show]


def _overview(noun: str, app: App, commands: dict[str, App]) -> str:
    rows = [(name, _description(command).split("\n")[0]) for name, command in commands.items()]
    column = max(len(name) for name in commands) + 4
    parts = [
        f"Usage: lakelog {noun} COMMAND [OPTIONS]",
        _description(app),
        _table("Commands", rows, column),
        f"lakelog {noun} COMMAND --help shows the options of a command.",
    ]
    return "\n\n".join(parts) + "\n"


def _page(words: str, app: App) -> str:
    arguments = arguments_of(app)
    positional = [each for each in arguments if each.index is not None]
    sections: dict[str, list[tuple[str, str]]] = {}
    for each in arguments:
        if each.index is None:
            title = each.parameter.group[0].name  # type: ignore[index]
            title = "Options" if title == "Parameters" else title
            sections.setdefault(title, []).append((_option(each), _text(each)))
    sections.setdefault("Options", []).append(_HELP_ROW)
    usage = " ".join([f"Usage: lakelog {words}", *map(_place, positional), "[OPTIONS]"])
    described = [(each.names[0], _text(each)) for each in positional if _text(each)]
    parts = [usage, _description(app)]
    parts += [_table("Arguments", described, _COLUMN)] if described else []
    parts += [_table(title, rows, _COLUMN) for title, rows in _in_order(sections)]
    return "\n\n".join(parts) + "\n"


def _in_order(
    sections: dict[str, list[tuple[str, str]]],
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return options with the command's own first and common ones last."""
    return sorted(sections.items(), key=lambda section: section[0] != "Options")


def _place(argument: Argument) -> str:
    name = argument.names[0]
    if argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"[{name}...]"
    return name if argument.required else f"[{name}]"


def _option(argument: Argument) -> str:
    names = sorted(argument.names, key=lambda name: name.startswith("--"))
    listed = ", ".join(names)
    return listed if argument.is_flag() else f"{listed} {_metavar(argument)}"


def _metavar(argument: Argument) -> str:
    kinds = _alternatives(argument.hint)
    if get_origin(kinds[0]) is Literal:
        return "|".join(get_args(kinds[0]))
    if kinds[0] is int:
        return "N"
    form = _FORM.match(_text(argument))
    longest = max(argument.names[:1], key=len).lstrip("-")
    return form[0] if form else longest.upper()


def _alternatives(hint: Any) -> list[Any]:
    """Return the types of a type hint without `None` and without their list."""
    if get_origin(hint) is list:
        return list(get_args(hint))
    if get_origin(hint) is Union or isinstance(hint, type(int | None)):
        return [kind for part in get_args(hint) for kind in _alternatives(part)]
    return [hint]


def _text(argument: Argument) -> str:
    text = " ".join((argument.parameter.help or "").split())
    names = [name for name in argument.parameter.env_var or () if name not in text]
    return f"{text} [{', '.join(names)}]" if names else text


def _description(app: App) -> str:
    documented = app.default_command.__doc__ if app.default_command else app.help
    text = _PARAMETERS.sub("", inspect.cleandoc(documented or ""))
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(textwrap.fill(part, _WIDTH) for part in paragraphs)


def _table(title: str, rows: Sequence[tuple[str, str]], column: int) -> str:
    lines = [f"{title}:"]
    for left, right in rows:
        indent = " " * column
        wrapped = textwrap.wrap(right, _WIDTH - column) or [""]
        if len(left) + 4 <= column:
            lines.append(f"  {left}".ljust(column) + wrapped[0])
            wrapped = wrapped[1:]
        else:
            lines.append(f"  {left}")
        lines += [indent + line for line in wrapped]
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Write all pages, and remove pages of commands that no longer exist."""
    written = {FOLDER / f"{name}.txt": text for name, text in pages().items()}
    for path in set(FOLDER.glob("*.txt")) - set(written):
        path.unlink()
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(written)} pages in {FOLDER}\n")


if __name__ == "__main__":
    main()
