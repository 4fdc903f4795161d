"""Generates the function that encodes one version of a message.

The generated function takes the message and returns its parts: byte arrays, and between them the
unchanged values of `records` fields. The current byte array is `out`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lakelog.wire.compile import SHORT_ARRAY, Writer, element_of, split_fields
from lakelog.wire.primitives import (
    FIXED_FORMATS,
    MAX_STRING_BYTES,
    SHORT_UVARINTS,
    WireError,
    cut_text,
    encode_fixed_array,
    encode_uvarint,
)
from lakelog.wire.shapes import Field

_NO_TAGS = b"\x00"


def compile_encoder(message: Any, version: int) -> Callable[..., Any]:
    """Return `message -> [bytearray, records, bytearray, ...]` for a class and a version.

    The function raises `WireError`, `struct.error`, `AttributeError`, `TypeError` and `ValueError`
    for values that the version cannot contain.
    """
    assert version in message.__versions__
    writer = _Writer(version, version in message.__flexible__, _NAMES)
    writer.source.add("parts = []", "out = bytearray()")
    writer.struct("message", message)
    writer.flush()
    with writer.source.block("if out or not parts:"):
        writer.source.add("parts.append(out)")
    writer.source.add("return parts")
    return writer.source.compile("message", f"encode {message.__name__} v{version}")


class _Writer(Writer):
    """Generates the source; the next `flush` writes the fixed-size values in `run` at once."""

    out = "out"
    """The variable of the current byte array."""

    def flush(self) -> None:
        if self.run == [("B", "0")]:
            self.source.add(f"{self.out} += {_NO_TAGS!r}")
        elif self.run:
            self.source.add(f"{self.out} += {self._pack(self.run)}")
        self.run = []

    def _pack(self, run: list[tuple[str, str]]) -> str:
        pack, _ = self.source.layout("".join(character for character, _ in run), "pack")
        return f"{pack}({', '.join(expression for _, expression in run)})"

    def _flush_with_uvarint(self, value: str) -> None:
        short, long = f"short_uvarints[{value}]", f"uvarint({value})"
        if self.run:
            short = self._pack([*self.run, ("B", value)])
            long = f"{self._pack(self.run)} + {long}"
        self.source.add(f"{self.out} += {short} if {value} < 128 else {long}")
        self.run = []

    def struct(self, target: str, kind: Any) -> None:
        """Write the struct in variable `target`; a run may stay open."""
        plain, tagged = split_fields(kind.__fields__, self.version, self.flexible)
        for field in plain:
            self._field(f"{target}.{field.name}", field)
        if self.flexible:
            self._tagged_fields(target, tagged)

    def _field(self, expression: str, field: Field) -> None:
        if field.is_array:
            self._array(expression, field)
        elif field.struct is not None:
            self._struct_field(expression, field)
        elif field.type_name in FIXED_FORMATS:
            self._fixed(expression, field)
        elif field.type_name == "string":
            self._string(expression, field)
        else:
            self._buffer(expression, field)

    def _fixed(self, expression: str, field: Field) -> None:
        if field.type_name == "uuid":
            value = self.source.variable("u")
            expression = f"{value} if len({value} := {expression}) == 16 else refuse_uuid({value})"
        self.run.append((FIXED_FORMATS[field.type_name], expression))

    def _struct_field(self, expression: str, field: Field) -> None:
        value = self.source.variable("o")
        self.flush()
        self.source.add(f"{value} = {expression}")
        if self.version not in field.nullable:
            self.struct(value, field.struct)
            return
        tagged = field.tag is not None and self.flexible
        present, absent = (b"\x01", b"\x00") if tagged else (b"\x01", b"\xff")
        with self.source.block(f"if {value} is None:"):
            self.source.add(f"{self.out} += {absent!r}")
        with self.source.block("else:"):
            self.source.add(f"{self.out} += {present!r}")
            self.struct(value, field.struct)
            self.flush()

    def _length(self, value: str, field: Field, character: str) -> str:
        """Write the length of variable `value` (-1 or 0 for null) and return its variable."""
        length = self.source.variable("n")
        plus_one = " + 1" if self.flexible else ""
        expression = f"len({value}){plus_one}"
        if self.version in field.nullable:
            expression = f"{0 if self.flexible else -1} if {value} is None else {expression}"
        self.source.add(f"{length} = {expression}")
        if self.flexible:
            self._flush_with_uvarint(length)
        else:
            self.run.append((character, length))
            self.flush()
        return length

    def _string(self, expression: str, field: Field) -> None:
        value = self.source.variable("s")
        content = f"cut_text({expression})" if field.is_cut else f"{expression}.encode()"
        if self.version in field.nullable:
            content = f"None if {expression} is None else {content}"
        self.source.add(f"{value} = {content}")
        length = self._length(value, field, "h")
        written = value
        if self.flexible:
            written = f"{value} if {length} < 128 else checked_string({field.name!r}, {value})"
        self._append_unless_null(written, value, field)

    def _append_unless_null(self, written: str, value: str, field: Field) -> None:
        if self.version in field.nullable:
            with self.source.block(f"if {value} is not None:"):
                self.source.add(f"{self.out} += {written}")
        else:
            self.source.add(f"{self.out} += {written}")

    def _buffer(self, expression: str, field: Field) -> None:
        value = self.source.variable("b")
        self.source.add(f"{value} = {expression}")
        length = self._length(value, field, "i")
        if field.type_name == "bytes":
            self._append_unless_null(value, value, field)
            return
        assert self.out == "out", "records cannot be tagged"
        # Records are not copied, and may be a range of a file. Without any, no part is begun: the
        # fields before and after stay in one byte array.
        with self.source.block(f"if {length} > {int(self.flexible)}:"):
            self.source.add("parts.append(out)", f"parts.append({value})", "out = bytearray()")

    def _array(self, expression: str, field: Field) -> None:
        items = self.source.variable("a")
        self.source.add(f"{items} = {expression}")
        self._length(items, field, "i")
        if self.version in field.nullable:
            self.source.add(f"{items} = {items} or ()")
        self._items(items, field)

    def _items(self, items: str, field: Field) -> None:
        if field.struct is None and field.type_name in FIXED_FORMATS and field.type_name != "uuid":
            character = FIXED_FORMATS[field.type_name]
            short = self.source.array_layouts(character, "pack")
            with self.source.block(f"if len({items}) < {SHORT_ARRAY}:"):
                self.source.add(f"{self.out} += {short}[len({items})](*{items})")
            with self.source.block("else:"):
                self.source.add(f"{self.out} += pack_array({character!r}, {items})")
            return
        item = self.source.variable("i")
        with self.source.block(f"for {item} in {items}:"):
            if field.struct is not None:
                self.struct(item, field.struct)
            else:
                self._field(item, element_of(field))
            self.flush()

    def _tagged_fields(self, target: str, tagged: list[Field]) -> None:
        if not tagged:
            self.run.append(("B", "0"))
            return
        unused = " and ".join(self._is_unused(f"{target}.{field.name}", field) for field in tagged)
        self.flush()
        with self.source.block(f"if {unused}:"):
            self.source.add(f"{self.out} += {_NO_TAGS!r}")
        with self.source.block("else:"):
            self._used_tags(target, tagged)

    def _used_tags(self, target: str, tagged: list[Field]) -> None:
        marks = []
        for field in tagged:
            mark = self.source.variable("t")
            marks.append(mark)
            self.source.add(f"{mark} = {self._differs(f'{target}.{field.name}', field)}")
        self.source.add(f"{self.out} += short_uvarints[{' + '.join(marks)}]")
        for field, mark in zip(tagged, marks, strict=True):
            with self.source.block(f"if {mark}:"):
                self._tagged_field(f"{target}.{field.name}", field)

    def _is_unused(self, expression: str, field: Field) -> str:
        """Generate a condition that is true of a default only, but not of every equal struct."""
        if field.struct is not None and not field.is_array and field.default is not None:
            return f"{expression} is {self.source.constant('default', field.default)}"
        return f"not ({self._differs(expression, field)})"

    def _differs(self, expression: str, field: Field) -> str:
        if field.default is None:
            return f"{expression} is not None"
        if field.is_array:
            return f"{expression} != []"
        if field.struct is not None:
            default = self.source.constant("default", field.default)
            return f"{expression} != {default}"
        return f"{expression} != {field.default!r}"

    def _tagged_field(self, expression: str, field: Field) -> None:
        # Into a byte array of its own: the size precedes the content, and is known after it.
        outer, self.out = self.out, self.source.variable("out")
        self.source.add(f"{self.out} = bytearray()")
        self._field(expression, field)
        self.flush()
        self.source.add(
            f"{outer} += {encode_uvarint(field.tag or 0)!r} + uvarint(len({self.out}))",
            f"{outer} += {self.out}",
        )
        self.out = outer


def _checked_string(name: str, value: bytes) -> bytes:
    if len(value) > MAX_STRING_BYTES:
        raise WireError(
            f"{name} is a string of {len(value)} bytes; at most {MAX_STRING_BYTES} are allowed"
        )
    return value


def _refuse_uuid(value: bytes) -> NoReturn:
    raise WireError(f"a UUID of {len(value)} bytes instead of 16")


_NAMES = {
    "uvarint": encode_uvarint,
    "pack_array": encode_fixed_array,
    "short_uvarints": SHORT_UVARINTS,
    "checked_string": _checked_string,
    "cut_text": cut_text,
    "refuse_uuid": _refuse_uuid,
}
