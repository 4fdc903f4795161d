"""Generates the function that decodes one version of a message.

The generated function takes `(view, end, budget)` and returns `(message, position)`; `end` is the
length of `view`. Three facts keep it both short and safe:

- fixed-size reads past the end raise `struct.error` or `IndexError`;
- the position only grows, because negative lengths are rejected; a slice that Python silently
  shortens at the end therefore leaves a position beyond `end`, which the caller rejects;
- a count is rejected before its list is allocated, unless count x minimum element size fits the
  remaining bytes and the count fits `budget`, the allowed number of array elements in one message.

The caller converts all these exceptions to `WireError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import unpack_from
from typing import Any, NoReturn

from lakelog.wire.compile import SHORT_ARRAY, Shape, Writer, element_of, smallest_size, split_fields
from lakelog.wire.primitives import (
    FIXED_FORMATS,
    MAX_STRING_BYTES,
    MAX_UNKNOWN_TAGS,
    WireError,
    check_tag,
    decode_uvarint,
    finish_uvarint,
    skip_tagged_fields,
)
from lakelog.wire.shapes import Field


def compile_decoder(message: Any, version: int) -> Callable[..., Any]:
    """Return `(view, end, budget) -> (message, position)` for a class and one of its versions.

    The function raises `WireError`, `struct.error`, `IndexError` and `UnicodeDecodeError`.
    """
    assert version in message.__versions__
    writer = _Writer(version, version in message.__flexible__, _NAMES)
    writer.source.add("position = 0")
    result = writer.struct(message)
    writer.flush()
    writer.source.add(f"return {result}, position")
    return writer.source.compile("view, end, budget", f"decode {message.__name__} v{version}")


class _Writer(Writer):
    """Generates the source; the next `flush` reads the fixed-size targets in `run` at once."""

    def flush(self) -> None:
        """Generate one read of the pending run. Any other read must be preceded by it."""
        if not self.run:
            return
        run, self.run = self.run, []
        targets = ", ".join(target for _, target in run)
        characters = "".join(character for character, _ in run)
        if characters == "B":
            self.source.add(f"{targets} = view[position]", "position += 1")
            return
        unpack, size = self.source.layout(characters, "unpack_from")
        comma = "," if len(run) == 1 else ""
        self.source.add(f"{targets}{comma} = {unpack}(view, position)", f"position += {size}")

    def struct(self, kind: Any) -> str:
        """Read a struct into a new variable and return its name; a run may stay open."""
        target = self.source.variable("o")
        self.flush()
        # `object.__new__`, not the constructor: every attribute is assigned below.
        self.source.add(f"{target} = new({self.source.constant('class', kind)})")
        fields: Shape = kind.__fields__
        plain, tagged = split_fields(fields, self.version, self.flexible)
        for field in fields:
            if field not in plain:
                self._set_default(target, field)
        for field in plain:
            self._field(f"{target}.{field.name}", field)
        if self.flexible:
            self._tagged_fields(target, tagged)
        return target

    def _set_default(self, target: str, field: Field) -> None:
        if field.is_array and field.default is not None:
            value = "[]"
        elif isinstance(field.default, int | float | str | None):
            value = repr(field.default)
        else:
            value = self.source.constant("default", field.default)
        self.source.add(f"{target}.{field.name} = {value}")

    def _field(self, target: str, field: Field) -> None:
        if field.is_array:
            self._array(target, field)
        elif field.struct is not None:
            self._struct_field(target, field)
        elif field.type_name in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[field.type_name], target))
        else:
            self._variable_size(target, field)

    def _struct_field(self, target: str, field: Field) -> None:
        if self.version not in field.nullable:
            self._read_struct_into(target, field)
            return
        mark = self.source.variable("n")
        if field.tag is not None and self.flexible:
            self._uvarint(mark)
            present = f"if {mark}:"
        else:
            self.run.append(("b", mark))
            self.flush()
            present = f"if {mark} >= 0:"
        with self.source.block(present):
            self._read_struct_into(target, field)
        with self.source.block("else:"):
            self.source.add(f"{target} = None")

    def _read_struct_into(self, target: str, field: Field) -> None:
        inner = self.struct(field.struct)
        self.flush()
        self.source.add(f"{target} = {inner}")

    def _uvarint(self, target: str) -> None:
        self.run.append(("B", target))
        self.flush()
        with self.source.block(f"if {target} > 127:"):
            self.source.add(f"{target}, position = finish_uvarint(view, position, {target})")

    @contextmanager
    def _length(self, target: str, field: Field, character: str) -> Iterator[str]:
        """Read a length or count; the lines that are added inside are skipped for null.

        In a flexible version the variable holds the length + 1, as it is encoded.
        """
        length = self.source.variable("n")
        if self.flexible:
            self._uvarint(length)
        else:
            self.run.append((character, length))
            self.flush()
        null = 0 if self.flexible else -1
        if self.version in field.nullable:
            with self.source.block(f"if {length} == {null}:"):
                self.source.add(f"{target} = None")
            with self.source.block("else:"):
                self._refuse_below(0, field, length)
                yield length
        else:
            self._refuse_below(null + 1, field, length)
            yield length

    def _refuse_below(self, lowest: int, field: Field, length: str) -> None:
        """Generate the check of a minimum; a varint is never below 0."""
        if lowest > 0 or not self.flexible:
            with self.source.block(f"if {length} < {lowest}:"):
                self.source.add(f"refuse_null({field.name!r}, {length})")

    def _variable_size(self, target: str, field: Field) -> None:
        is_string = field.type_name == "string"
        content = "view[position:stop]"
        if is_string:
            content = f"str({content}, 'utf-8')"
        with self._length(target, field, "h" if is_string else "i") as length:
            if is_string and self.flexible:
                with self.source.block(f"if {length} > {MAX_STRING_BYTES + 1}:"):
                    self.source.add(f"refuse_string({field.name!r}, {length} - 1)")
            self.source.add(
                f"stop = position + {length}" + (" - 1" if self.flexible else ""),
                f"{target} = {content}",
                "position = stop",
            )

    def _array(self, target: str, field: Field) -> None:
        with self._length(target, field, "i") as count:
            if self.flexible:
                self.source.add(f"{count} -= 1")
            items = self.source.variable("a")
            self._items(items, field, count)
            self.source.add(f"{target} = {items}")

    def _items(self, items: str, field: Field, count: str) -> None:
        size = smallest_size(field, self.version, self.flexible)
        assert size > 0, "an element without bytes would let a count of any size pass"
        # Before the list exists: a request of a few bytes could declare two billion elements.
        self.source.add(f"budget -= {count}")
        with self.source.block(f"if {count} * {size} > end - position or budget < 0:"):
            self.source.add(f"refuse_count({field.name!r}, {count})")
        if field.type_name == "uuid":  # "16s" has a count of its own in a layout
            self.source.add(
                f"{items} = [bytes(view[at:at + 16]) for at in"
                f" range(position, position + {count} * 16, 16)]",
                f"position += {count} * 16",
            )
            return
        if field.struct is None and field.type_name in FIXED_FORMATS:
            character = FIXED_FORMATS[field.type_name]
            short = self.source.array_layouts(character, "unpack_from")
            self.source.add(
                f"{items} = list({short}[{count}](view, position) if {count} < {SHORT_ARRAY}"
                f" else unpack_array({character!r}, {count}, view, position))",
                f"position += {count} * {size}",
            )
            return
        self.source.add(f"{items} = []")
        with self.source.block(f"for _ in range({count}):"):
            self.source.add(f"{items}.append({self._item(field)})")

    def _item(self, field: Field) -> str:
        if field.struct is not None:
            item = self.struct(field.struct)
            self.flush()
            return item
        item = self.source.variable("v")
        self._variable_size(item, element_of(field))
        return item

    def _tagged_fields(self, target: str, tagged: list[Field]) -> None:
        count = self.source.variable("n")
        if tagged:
            self._known_tags(target, tagged, count)
            return
        self.run.append(("B", count))
        self.flush()
        with self.source.block(f"if {count}:"):
            self.source.add(f"position = skip_tagged_fields(view, position, {count}, end)")

    def _known_tags(self, target: str, tagged: list[Field], count: str) -> None:
        tag, last, stop, size, unknown = (
            self.source.variable(name) for name in ("tag", "last", "stop", "size", "unknown")
        )
        self._uvarint(count)
        with self.source.block(f"if {count}:"):
            self.source.add(f"{last} = -1", f"{unknown} = 0")
            with self.source.block(f"for _ in range({count}):"):
                self.source.add(
                    f"{tag}, position = decode_uvarint(view, position)",
                    f"{size}, position = decode_uvarint(view, position)",
                    f"check_tag({tag}, {last})",
                    f"{last} = {tag}",
                    f"{stop} = position + {size}",
                )
                # Each known field ends with `continue`, so an unknown tag reaches the end.
                for field in tagged:
                    with self.source.block(f"if {tag} == {field.tag}:"):
                        self._tagged_field(f"{target}.{field.name}", field, stop)
                self._unknown_tag(unknown, stop)

    def _tagged_field(self, target: str, field: Field, stop: str) -> None:
        self._field(target, field)
        self.flush()
        # A known field is not bounded by its declared size while it is read: it must end there.
        with self.source.block(f"if position != {stop}:"):
            self.source.add(f"refuse_tag({field.name!r}, position - {stop})")
        self.source.add("continue")

    def _unknown_tag(self, unknown: str, stop: str) -> None:
        self.source.add(f"position = {stop}", f"{unknown} += 1")
        with self.source.block(f"if {unknown} > {MAX_UNKNOWN_TAGS}:"):
            self.source.add(f"refuse_tag('unknown', {unknown})")


def _unpack_array(character: str, count: int, view: memoryview, position: int) -> tuple[Any, ...]:
    return unpack_from(f">{count}{character}", view, position)


def _refuse_null(name: str, length: int) -> NoReturn:
    raise WireError(f"{name} is null or of length {length}")


def _refuse_string(name: str, length: int) -> NoReturn:
    raise WireError(f"{name} is a string of {length} bytes; at most {MAX_STRING_BYTES} are allowed")


def _refuse_count(name: str, count: int) -> NoReturn:
    raise WireError(
        f"{name} has a count of {count} elements, above the limit or the remaining bytes"
    )


def _refuse_tag(what: str, number: int) -> NoReturn:
    raise WireError(f"tagged fields with a wrong size or number ({what}: {number})")


_NAMES = {
    "new": object.__new__,
    "finish_uvarint": finish_uvarint,
    "decode_uvarint": decode_uvarint,
    "check_tag": check_tag,
    "skip_tagged_fields": skip_tagged_fields,
    "unpack_array": _unpack_array,
    "refuse_null": _refuse_null,
    "refuse_count": _refuse_count,
    "refuse_tag": _refuse_tag,
    "refuse_string": _refuse_string,
}
