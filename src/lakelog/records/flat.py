"""Generates flat loops from small functions: the bodies of functions replace their calls.

Small functions that read the parts of a record describe its layout once. A call takes as long as
the reading, so the loops over records are flat functions, as the decoders of messages are
(`lakelog.wire.compile`).

A call is replaced if it is a line that assigns the result to several names. Each branch of the
called function ends with `return` or `raise`, none within a loop. Its variables become variables of
the calling function, and the globals that it uses become globals of the calling module.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_BODY = re.compile(r'def .*?:\n(?:    """.*?"""\n)?(.*?)(?=\n\S|\Z)', re.DOTALL)
_CALL = re.compile(r"( *)(\w+, [\w, ]+) = (\w+)\((.*)\)")
LINES: dict[Any, list[str]] = {}
"""The lines of flat functions, without signatures and docstrings."""


def flat(function: F) -> F:
    """Return the function with the bodies of earlier flat functions in place of their calls.

    Without its source, the function is returned as it is: it does the same, but slower. The line
    numbers of a traceback count the generated lines.
    """
    code, names = function.__code__, function.__globals__
    source = linecache.getlines(code.co_filename, names)[code.co_firstlineno :]
    body = _BODY.match("".join(source))
    if body is None:
        return function
    lines = list(_flat_lines(body[1].split("\n"), names))
    text = "\n".join([f"def {code.co_name}({', '.join(_parameters(function))}):", *lines])
    scope: dict[str, Any] = {}
    exec(compile(text, code.co_filename, "exec"), names, scope)
    result: F = scope[code.co_name]
    update_wrapper(result, function)
    LINES[result] = lines
    return result


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _flat_lines(lines: list[str], names: dict[str, Any]) -> Iterator[str]:
    for line in lines:
        call = _CALL.fullmatch(line)
        called: Any = names.get(call[3]) if call else None
        if call is None or called not in LINES:
            yield line
            continue
        for name in called.__globals__.keys() & called.__code__.co_names:
            value = called.__globals__[name]
            assert names.setdefault(name, value) is value, f"{name} is another global here"
        indent, targets, _, arguments = call.groups()
        for parameter, argument in zip(_parameters(called), arguments.split(", "), strict=True):
            if parameter != argument:
                yield f"{indent}{parameter} = {argument}"
        for inner in LINES[called]:
            before, returns, result = inner[4:].partition("return ")
            yield indent + before + (_assignment(targets, result) if returns else "")


def _assignment(targets: str, result: str) -> str:
    """Return the assignment of a result, except to `_` and of variables to themselves."""
    values = result.split(", ")
    if any(value.count("(") != value.count(")") for value in values):
        return f"{targets} = {result}"
    pairs = zip(targets.split(", "), values, strict=True)
    moved = [(target, value) for target, value in pairs if target not in ("_", value)]
    return " = ".join(map(", ".join, zip(*moved, strict=True)))
