"""The language that messages are declared in.

A message is one class for all its versions; an attribute is a field in the order of the wire:

```python
class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class ExampleResponse(Message, versions="3-13", flexible="9+"):
    throttle_time_ms: int = int32()
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)
```

Version ranges have Kafka's syntax ("3+", "0-12", "4"). The first range contains the versions that
have the field; in other versions it is neither read nor written and holds its default. `nullable`
are the versions in which null is allowed, and `flexible` the versions in which lengths are varints
and structs end with tagged fields. A field with a `tag` is encoded as a tagged field, if its value
differs from its default.

The classes have slots, keyword-only constructors, `==` and a short `repr`. They are mutable, with
one exception: the default of a `struct` field is a single shared object that rejects assignment, so
that unused structs in a message cost nothing. Assign a new struct to change it.

A declaration generates no code: a constructor is compiled on its first call, and
`lakelog.wire.codec` compiles the codec of a version on its first use, so that imports stay cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, overload

from lakelog.wire.primitives import FIXED_FORMATS
from lakelog.wire.shapes import Field, Versions, compile_init, describe, frozen_default, parse

E = TypeVar("E")
S = TypeVar("S", bound="Struct")

Buffer = bytes | bytearray | memoryview


class _StructType(type):
    """Converts the fields of a class body to slots and keeps them in order."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: str
    ) -> _StructType:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        for key, field in fields.items():
            assert not field.name, f"{field.name} is used twice: a field belongs to one class"
            field.name = key
        body["__slots__"] = tuple(fields)
        if fields:
            body["__fields__"] = tuple(fields.values())
        return super().__new__(cls, name, bases, body, **options)


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=_StructType):
    """A group of fields inside a message."""

    __fields__: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **values: Any) -> None:
        kind = type(self)
        kind.__init__ = compile_init(kind.__fields__)  # type: ignore[method-assign]
        kind.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.__fields__ is not self.__fields__:
            return NotImplemented
        names = (field.name for field in self.__fields__)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return describe(self, self.__fields__)


class Message(Struct):
    """A message, with its versions and its compiled codecs."""

    __versions__: ClassVar[Versions]
    __flexible__: ClassVar[Versions]
    __decoders__: ClassVar[dict[int, Callable[..., Any]]]
    __encoders__: ClassVar[dict[int, Callable[..., Any]]]

    def __init_subclass__(cls, *, versions: str, flexible: str = "none") -> None:
        cls.__versions__ = parse(versions)
        cls.__flexible__ = parse(flexible)
        assert cls.__versions__.highest >= cls.__versions__.lowest, "a message has a version"
        cls.__decoders__ = {}
        cls.__encoders__ = {}


def _fixed(type_name: str, versions: str, tag: int | None, default: E) -> E:
    field: Any = Field(type_name, versions=parse(versions), tag=tag, default=default)
    return cast(E, field)


def boolean(versions: str = "0+", *, tag: int | None = None, default: bool = False) -> bool:
    """Declare a boolean of one byte."""
    return _fixed("bool", versions, tag, default)


def int8(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    """Declare a signed integer of 1 byte."""
    return _fixed("int8", versions, tag, default)


def int16(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    """Declare a signed integer of 2 bytes."""
    return _fixed("int16", versions, tag, default)


def uint16(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    """Declare an unsigned integer of 2 bytes."""
    return _fixed("uint16", versions, tag, default)


def int32(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    """Declare a signed integer of 4 bytes."""
    return _fixed("int32", versions, tag, default)


def uint32(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    """Declare an unsigned integer of 4 bytes."""
    return _fixed("uint32", versions, tag, default)


def int64(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    """Declare a signed integer of 8 bytes."""
    return _fixed("int64", versions, tag, default)


def float64(versions: str = "0+", *, tag: int | None = None, default: float = 0.0) -> float:
    """Declare an IEEE 754 number of 8 bytes."""
    return _fixed("float64", versions, tag, default)


def uuid(versions: str = "0+", *, tag: int | None = None) -> bytes:
    """Declare a UUID: 16 bytes, all zero by default."""
    return _fixed("uuid", versions, tag, bytes(16))


@overload
def string(versions: str = ..., *, tag: int | None = ..., default: str = ...) -> str: ...
@overload
def string(
    versions: str = ..., *, nullable: str, tag: int | None = ..., default: str | None = ...
) -> str | None: ...
def string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: str | None = "",
) -> Any:
    """Declare a string in UTF-8 of at most 32,767 bytes."""
    return Field(
        "string", versions=parse(versions), nullable=parse(nullable), tag=tag, default=default
    )


def error_text(
    versions: str = "0+", *, nullable: str = "0+", default: str | None = ""
) -> str | None:
    """Declare the text of an error, which may contain input of a peer.

    Like `string`, but a text that is too long is shortened instead of rejected when it is encoded.
    """
    result: str | None = Field(
        "string", versions=parse(versions), nullable=parse(nullable), default=default, is_cut=True
    )  # type: ignore[assignment]
    return result


@overload
def binary(versions: str = ..., *, tag: int | None = ..., default: Buffer = ...) -> Buffer: ...
@overload
def binary(
    versions: str = ..., *, nullable: str, tag: int | None = ..., default: Buffer | None = ...
) -> Buffer | None: ...
def binary(
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Buffer | None = b"",
) -> Any:
    """Declare Kafka's `bytes`: encoded from any buffer, decoded as a `memoryview` of the input."""
    return Field(
        "bytes", versions=parse(versions), nullable=parse(nullable), tag=tag, default=default
    )


def records(versions: str = "0+", *, nullable: str = "none") -> Any:
    """Declare record batches, which are never parsed.

    They are decoded as a `memoryview` of the input. When encoded, the value can be any object with
    a length, such as a range of a file; it becomes a part of its own in `encode_parts`.
    """
    default = None if nullable != "none" else b""
    return Field("records", versions=parse(versions), nullable=parse(nullable), default=default)


@overload
def array(element: Callable[..., E], versions: str = ..., *, tag: int | None = ...) -> list[E]: ...
@overload
def array(
    element: Callable[..., E],
    versions: str = ...,
    *,
    nullable: str,
    tag: int | None = ...,
    default: None = ...,
) -> list[E] | None: ...
def array(
    element: Callable[..., Any],
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Any = (),
) -> Any:
    """Declare a list of structs, or of `int32`, `string` and the other functions of this module.

    The default is a new empty list, or null with `default=None`.
    """
    struct_type = element if isinstance(element, type) else None
    return Field(
        struct_type.__name__ if struct_type else _type_name(element),
        struct=struct_type,
        is_array=True,
        versions=parse(versions),
        nullable=parse(nullable),
        tag=tag,
        default=default,
    )


def _type_name(function: Callable[..., Any]) -> str:
    names = {boolean: "bool", binary: "bytes"}
    name = names.get(function, function.__name__)
    assert name in FIXED_FORMATS or name in ("string", "bytes"), name
    return name


@overload
def struct(kind: type[S], versions: str = ..., *, tag: int | None = ...) -> S: ...
@overload
def struct(
    kind: type[S], versions: str = ..., *, nullable: str, tag: int | None = ..., default: None = ...
) -> S | None: ...
def struct(
    kind: type[S],
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Any = (),
) -> Any:
    """Declare a nested struct. Its default has all defaults, or is null with `default=None`."""
    return Field(
        kind.__name__,
        struct=kind,
        versions=parse(versions),
        nullable=parse(nullable),
        tag=tag,
        default=None if default is None else frozen_default(kind),
    )


_Plan = tuple[tuple[str, bool], ...]


def count_elements(message: Struct) -> int:
    """Return the number of elements of all arrays together, as the decoder counts them.

    The limits are `MAX_REQUEST_ELEMENTS` and `MAX_RESPONSE_ELEMENTS`; see docs/limits.md.
    """
    count = 0
    for name, has_arrays in _plan(type(message)):
        value = getattr(message, name)
        if isinstance(value, Struct):
            count += count_elements(value)
        elif value:
            count += len(value)
            if has_arrays:
                count += sum(map(count_elements, value))
    return count


@cache
def _plan(kind: type[Struct]) -> _Plan:
    """Return the fields that are or contain arrays, and whether their elements contain arrays."""
    plan = []
    for field in kind.__fields__:
        has_arrays = field.struct is not None and bool(_plan(field.struct))
        if field.is_array or has_arrays:
            plan.append((field.name, has_arrays))
    return tuple(plan)
