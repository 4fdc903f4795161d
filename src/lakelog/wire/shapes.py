"""The parts of a declaration: version ranges, fields, and the methods generated from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

_OPEN_END = 0x7FFF
_LISTED_ITEMS = 3


class Versions:
    """An inclusive range of versions, possibly empty or without an upper end."""

    __slots__ = ("highest", "lowest")

    def __init__(self, lowest: int, highest: int) -> None:
        assert lowest >= 0 and highest >= lowest - 1, (lowest, highest)
        self.lowest = lowest
        self.highest = highest

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __iter__(self) -> Any:
        return iter(range(self.lowest, self.highest + 1))

    def __repr__(self) -> str:
        if self.highest < self.lowest:
            return "none"
        if self.highest == _OPEN_END:
            return f"{self.lowest}+"
        return f"{self.lowest}-{self.highest}"


@cache
def parse(text: str) -> Versions:
    """Return the range of `"3+"`, `"0-12"`, `"4"` or `"none"`, Kafka's syntax of versions.

    Raises `ValueError` for any other text.
    """
    if text == "none":
        return Versions(0, -1)
    if text.endswith("+"):
        return Versions(int(text[:-1]), _OPEN_END)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


class Field:
    """One attribute of a struct.

    `type_name` is Kafka's name of the type, for an array that of its elements. The default of an
    array is null or empty; the empty tuple stands for a new list each time. With `is_cut`, a string
    that is too long is shortened when it is encoded.
    """

    __slots__ = (
        "default", "is_array", "is_cut", "name", "nullable", "struct", "tag", "type_name",
        "versions",
    )  # fmt: skip

    def __init__(
        self,
        type_name: str,
        *,
        versions: Versions,
        default: Any,
        nullable: Versions | None = None,
        tag: int | None = None,
        struct: Any = None,
        is_array: bool = False,
        is_cut: bool = False,
    ) -> None:
        assert tag is None or tag >= 0, "KIP-482: a tag is an unsigned number"
        assert not is_cut or type_name == "string", "only a text can be shortened"
        self.name = ""
        self.type_name = type_name
        self.versions = versions
        self.nullable = parse("none") if nullable is None else nullable
        self.tag = tag
        self.struct = struct
        self.is_array = is_array
        self.is_cut = is_cut
        self.default = default

    def new_default(self) -> Any:
        """Return the default; a new list for an array."""
        return [] if self.is_array and self.default is not None else self.default


def compile_init(fields: tuple[Field, ...]) -> Callable[..., None]:
    """Return a generated constructor with one keyword per field, because it is on the hot path."""
    names = {f"default_{field.name}": field.default for field in fields}
    arguments = ", ".join(f"{field.name}=default_{field.name}" for field in fields)
    lines = [f"def __init__(self, *, {arguments}):" if fields else "def __init__(self):"]
    for field in fields:
        value = field.name
        if field.is_array and field.default is not None:
            value = f"[] if {value} is default_{value} else {value}"
        lines.append(f"    self.{field.name} = {value}")
    exec("\n".join([*lines, "    return None"]), names)
    init: Callable[..., None] = names["__init__"]
    return init


def frozen_default(kind: Any) -> Any:
    """Return a shared instance of a struct with all defaults, which rejects assignment."""

    def refuse(self: object, name: str, value: object) -> None:
        raise AttributeError(f"{kind.__name__}.{name}: a shared default; assign a new struct")

    shared = type(kind)(kind.__name__, (kind,), {"__setattr__": refuse})
    result = object.__new__(shared)
    for field in kind.__fields__:
        object.__setattr__(result, field.name, field.new_default())
    return result


def describe(value: object, fields: tuple[Field, ...]) -> str:
    """Return the class and the values that differ from defaults; lists and buffers are elided."""
    shown = []
    for field in fields:
        current = getattr(value, field.name)
        if current != field.new_default():
            shown.append(f"{field.name}={_elide(current)}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _elide(value: object) -> str:
    if isinstance(value, list):
        items = [_elide(item) for item in value[:_LISTED_ITEMS]]
        if len(value) > _LISTED_ITEMS:
            items.append(f"and {len(value) - _LISTED_ITEMS} more")
        return f"[{', '.join(items)}]"
    if isinstance(value, bytes) and len(value) == 16:
        return value.hex()
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    return repr(value)
