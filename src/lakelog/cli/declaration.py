"""How commands are declared: with `argparse`, and in the layout of this command line.

A module of `commands/` has a `Noun`. Each of its commands is a function, decorated with the help
text of each parameter:

    app = Noun("topic")

    @app.command("list", internal="Also show internal topics.")
    def list_topics(*, internal: bool = False, session: CommandSession) -> None:

The signature states the rest: a keyword-only parameter is an option, its type is the type of the
value, and a parameter without a default is required. A dataclass with `arguments`, such as
`CommandSession`, adds the options of its fields, and the function gets an instance. The docstring
is the description on the help page.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, NoReturn, Protocol, TypeVar, Union, get_args, get_origin

from lakelog.cli.failures import CliError, suggestion

F = TypeVar("F", bound=Callable[..., Any])
HELP_FLAGS = ("-h", "--help")
_WIDTH = 80
_COLUMN = 26
_NUMBER = re.compile(r"-\d")
"""The begin of a value such as -10 or -1h; no option begins like this."""


class Argument:
    """The help text of a parameter, and further facts that its signature does not state.

    names: an option without a long name has that of its parameter. is_common: it is listed apart,
    after the command's own ones. settings: parameters of `ArgumentParser.add_argument`.
    """

    def __init__(self, text: str, *names: str, is_common: bool = False, **settings: Any) -> None:
        self.names = names
        self.is_common = is_common
        self.settings = {"help": text, **settings}


common = partial(Argument, is_common=True)
"""An option that many commands have."""
Arguments = Mapping[str, str | Argument]
"""Help text, or more, by the name of a parameter."""


class Options(Protocol):
    """A dataclass whose fields are options."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    arguments: ClassVar[Arguments]


class Command:
    """A function with its positional arguments and options.

    They are parsed one after the other: `argparse` alone rejects some orders, such as
    `topic create a -p 3 b`, and which ones differs between versions of Python.
    """

    def __init__(self, words: str, function: Callable[..., Any]) -> None:
        self.function = function
        self.description = inspect.getdoc(function) or ""
        self.groups: dict[str, type[Options]] = {}
        self._positional = _Parser(words)
        self._options = _Parser(words)
        self.sections: dict[str, list[argparse.Action]] = {
            "Arguments": [],
            "Options": [],
            "Common options": [],
        }

    def add_parameters(self, owner: Callable[..., Any], declared: Arguments) -> None:
        """Add the declared parameters of a function, or fields of a dataclass."""
        parameters = _parameters(owner)
        for name, argument in declared.items():
            given = Argument(argument) if isinstance(argument, str) else argument
            derived = {} if "action" in given.settings else _settings(parameters[name])
            settings = {**derived, **given.settings}
            if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY:
                self._add("Arguments", self._positional, name, **settings)
                continue
            is_named = any(option.startswith("--") for option in given.names)
            names = given.names if is_named else (*given.names, f"--{name.replace('_', '-')}")
            title = "Common options" if given.is_common else "Options"
            self._add(title, self._options, *names, dest=name, **settings)

    def add_group(self, name: str, options: type[Options]) -> None:
        """Add the options of a dataclass; the function's parameter `name` gets an instance."""
        self.groups[name] = options
        self.add_parameters(options, options.arguments)

    def add_help(self) -> None:
        self._add("Options", self._options, *HELP_FLAGS, action="help", help="Show this page.")

    def arguments(self) -> list[argparse.Action]:
        """Return all arguments, in the order of the help page."""
        return [argument for section in self.sections.values() for argument in section]

    def parse(self, tokens: Sequence[str]) -> dict[str, Any]:
        """Return the arguments for the function. Raises `CliError` LL0902."""
        end = end_of_options(tokens)
        namespace, words = self._options.parse_known_args(tokens[:end])
        for word in words:
            if word.startswith("-") and len(word) > 1 and not _NUMBER.match(word):
                self._reject(word.partition("=")[0])
        words = ["--", *words, *tokens[end + 1 :]]
        namespace, extra = self._positional.parse_known_args(words, namespace)
        if unexpected := [word for word in extra if word != "--"]:
            self._positional.error(f"unrecognized arguments: {' '.join(unexpected)}")
        values = vars(namespace)
        for name, options in self.groups.items():
            fields = options.__dataclass_fields__
            values[name] = options(**{key: values.pop(key) for key in fields if key in values})
        return values

    def page(self) -> str:
        """Return the help page."""
        places = [_usage(argument) for argument in self.sections["Arguments"]]
        usage = " ".join([self._options.prog, *places, "[OPTIONS]"])
        return help_page(usage, self.description, self.sections)

    def _add(self, title: str, parser: _Parser, *names: str, **settings: Any) -> None:
        added = parser.add_argument(*names, **settings)
        if added.metavar is None and added.nargs != 0:
            added.metavar = _metavar(added)
        self.sections[title].append(added)

    def _reject(self, option: str) -> NoReturn:
        options = [name for argument in self.arguments() for name in argument.option_strings]
        similar = suggestion(option, options).capitalize().replace("'", "")
        self._options.error(f"Unknown option: {option}. {similar}".rstrip())


class Noun:
    """The commands of one module by name.

    A command with the noun's own name has none: `lakelog produce`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.commands: dict[str, Command] = {}

    def command(self, name: str | None = None, /, **declared: str | Argument) -> Callable[[F], F]:
        """Declare a function as a command; without `name` it has the function's."""

        def declare(function: F) -> F:
            word = name or function.__name__.replace("_", "-")
            word = "" if word == self.name else word
            command = Command(f"{self.name} {word}".rstrip(), function)
            command.add_parameters(function, declared)
            for parameter in _parameters(function).values():
                if parameter.name not in declared:
                    command.add_group(parameter.name, parameter.annotation)
            command.add_help()
            self.commands[word] = command
            return function

        return declare

    def page(self, summary: str) -> str:
        """Return the help page that lists the commands."""
        words = f"lakelog {self.name} COMMAND"
        summaries = {
            name: command.description.partition("\n")[0] for name, command in self.commands.items()
        }
        tail = f"{words} --help shows the options of a command.\n"
        return f"{overview(f'{words} [OPTIONS]', summary, summaries)}\n{tail}"


class _Parser(argparse.ArgumentParser):
    """`argparse` with the errors of this command line, and without abbreviations.

    Arguments that are not given are absent from the result, and an option with one value can be
    given once.
    """

    def __init__(self, words: str) -> None:
        super().__init__(
            prog=f"lakelog {words}".rstrip(),
            add_help=False,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=partial(_Layout, max_help_position=_COLUMN, width=_WIDTH),
        )
        self.register("action", None, _Once)
        self._negative_number_matcher = _NUMBER

    def error(self, message: str) -> NoReturn:
        raise CliError("LL0902", message, f"{self.prog} --help")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Return the value of an argument; Python 3.11 loses that of `--key-separator=--`."""
        if not action.option_strings or arg_strings != ["--"]:
            return super()._get_values(action, arg_strings)
        value = self._get_value(action, "--")
        self._check_value(action, value)
        return value


class _Once(argparse.Action):
    """Stores a value, and rejects a second one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if hasattr(namespace, self.dest):
            raise argparse.ArgumentError(self, "specified multiple times")
        setattr(namespace, self.dest, values)


class _Layout(argparse.HelpFormatter):
    """Keeps paragraphs, and shows the value of an option once."""

    def add_usage(
        self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None
    ) -> None:
        super().add_usage(usage, actions, groups, "Usage: ")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            super(_Layout, self)._fill_text(part, width, indent) for part in text.split("\n\n")
        )

    def _format_action_invocation(self, action: argparse.Action) -> str:
        value = f" {action.metavar}" if action.option_strings and action.metavar else ""
        names = ", ".join(action.option_strings) or str(action.metavar)
        return names + value


def help_page(
    usage: str, description: str, sections: Mapping[str, Sequence[argparse.Action]]
) -> str:
    """Return a help page."""
    layout = _Layout("", max_help_position=_COLUMN, width=_WIDTH)
    layout.add_usage(usage, (), ())
    layout.add_text(description)
    for title, rows in sections.items():
        layout.start_section(title)
        layout.add_arguments(rows)
        layout.end_section()
    return layout.format_help()


def overview(usage: str, summary: str, commands: Mapping[str, str]) -> str:
    """Return a help page that lists commands with their summaries."""
    rows = [argparse.Action((), name, metavar=name, help=text) for name, text in commands.items()]
    return help_page(usage, summary, {"Commands": rows})


def end_of_options(tokens: Sequence[str]) -> int:
    """Return the place of `--`, after which there are only positional arguments."""
    return tokens.index("--") if "--" in tokens else len(tokens)


def _parameters(owner: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(owner, eval_str=True).parameters


def _settings(parameter: inspect.Parameter) -> dict[str, Any]:
    """Return the parameters of `ArgumentParser.add_argument` that follow from a signature."""
    is_needed = parameter.default is parameter.empty
    kind = parameter.annotation
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if kind is bool:
        return {"action": "store_true"}
    if get_origin(kind) is Literal:
        values: dict[str, Any] = {"choices": get_args(kind)}
    else:
        values = {"type": next(iter(get_args(kind)), kind)}
    is_list = get_origin(kind) in (list, Sequence)
    if parameter.kind is parameter.KEYWORD_ONLY:
        return values | {"required": is_needed} | ({"action": "append"} if is_list else {})
    several = "+" if is_needed else "*"
    return values | {"nargs": several if is_list else None if is_needed else "?"}


def _metavar(added: argparse.Action) -> str:
    if added.choices is not None:
        return "|".join(added.choices)
    if not added.option_strings:
        return added.dest.upper()
    return "N" if added.type is int else max(added.option_strings, key=len).lstrip("-").upper()


def _usage(positional: argparse.Action) -> str:
    name = positional.metavar
    forms = {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name} [{name}...]"}
    return forms.get(str(positional.nargs), str(name))
