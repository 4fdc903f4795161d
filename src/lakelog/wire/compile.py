"""The generated source of codecs: the part that encoders and decoders share.

A codec is one flat function for each message class and version. Nested structs become nested loops.
A run of fixed-size fields becomes one call of a prepared `struct.Struct`, which also includes a
following length of one byte, the most frequent case. `tests/reference_codec.py` is the readable
reference.

The source contains only attribute names, numbers and numbered variables, never data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any

from lakelog.wire.primitives import FIXED_FORMATS, fixed_size
from lakelog.wire.shapes import Field

Shape = tuple[Field, ...]

SHORT_ARRAY = 8
"""Arrays of fixed-size values below this length have prepared layouts, for example replicas."""


class Source:
    """The lines of a function, the objects that they refer to, and numbers for its variables."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._variables = 0
        self._constants: dict[tuple[str, int], str] = {}

    def add(self, *lines: str) -> None:
        """Add lines at the current depth of blocks."""
        indent = "    " * self._depth
        self._lines.extend(indent + line for line in lines)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Lines that are added inside form the body of `opening`."""
        assert opening.endswith(":"), opening
        self.add(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, prefix: str) -> str:
        """Return a new name, so that nested structs do not overwrite each other's variables."""
        self._variables += 1
        return f"{prefix}{self._variables}"

    def constant(self, prefix: str, value: object) -> str:
        """Return a name for `value`, the same name for the same object."""
        # `names` keeps each value alive, so no other object can get its id.
        key = (prefix, id(value))
        if key not in self._constants:
            self._constants[key] = f"{prefix}_{len(self.names)}"
            self.names[self._constants[key]] = value
        return self._constants[key]

    def layout(self, characters: str, method: str) -> tuple[str, int]:
        """Return a name for `pack` or `unpack_from` of a layout, and the layout's size in bytes."""
        layout = Layout(">" + characters)
        # A name of the source, in which `?` (bool) is not allowed; `o` is no other type's letter.
        name = f"{method}_{characters.replace('?', 'o')}"
        self.names.setdefault(name, getattr(layout, method))
        return name, layout.size

    def array_layouts(self, character: str, method: str) -> str:
        """Return a name for `pack` or `unpack_from` of short arrays, indexed by their length."""
        name = f"{method}_array_of_{character}"
        if name not in self.names:
            layouts = (Layout(f">{length}{character}") for length in range(SHORT_ARRAY))
            self.names[name] = tuple(getattr(layout, method) for layout in layouts)
        return name

    def compile(self, signature: str, label: str) -> Callable[..., Any]:
        """Return the function; `label` names it in tracebacks.

        The source consists of names and numbers of declarations, so nothing that a peer sends is
        ever executed.
        """
        assert self._depth == 1, "every block is closed"
        assert signature.replace(", ", "").isidentifier(), "the source contains no data"
        text = "\n".join([f"def codec({signature}):", *self._lines])
        exec(compile(text, f"<{label}>", "exec"), self.names)
        function: Callable[..., Any] = self.names["codec"]
        return function


class Writer:
    """Generates the source of one version; `run` holds pending values of fixed size.

    The next `flush` of a subclass writes the run.
    """

    def __init__(self, version: int, flexible: bool, names: dict[str, Any]) -> None:
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.source = Source()
        self.source.names.update(names)


def element_of(field: Field) -> Field:
    """Return the field of one element of an array."""
    element = Field(field.type_name, versions=field.versions, default=field.default)
    element.name = field.name
    return element


def split_fields(fields: Shape, version: int, flexible: bool) -> tuple[list[Field], list[Field]]:
    """Return the untagged and the tagged fields of a version, in encoded order (KIP-482).

    In a version that is not flexible, a field with a tag is an untagged field.
    """
    present = [field for field in fields if version in field.versions]
    plain = [field for field in present if field.tag is None or not flexible]
    tagged = [field for field in present if field.tag is not None and flexible]
    tags = [field.tag for field in tagged]
    assert len(set(tags)) == len(tags), "a tag names one field"
    return plain, sorted(tagged, key=lambda field: field.tag or 0)


def smallest_size(field: Field, version: int, flexible: bool) -> int:
    """Return the minimum size of an array element in bytes, by which counts are checked."""
    if field.struct is None:
        if field.type_name in FIXED_FORMATS:
            return fixed_size(field.type_name)
        return _length_size(field.type_name, flexible)
    plain, _ = split_fields(field.struct.__fields__, version, flexible)
    total = sum(_smallest_field(inner, version, flexible) for inner in plain)
    # At least 1, or a count of empty structs would pass without any bytes behind it.
    return max(1, total + flexible)


def _smallest_field(field: Field, version: int, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.struct is not None and version in field.nullable:
        return 1
    return smallest_size(field, version, flexible)


def _length_size(type_name: str, flexible: bool) -> int:
    if flexible:
        return 1
    return 2 if type_name == "string" else 4
