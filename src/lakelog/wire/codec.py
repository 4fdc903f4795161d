"""Encodes and decodes messages with functions that are compiled on first use.

```python
message = decode(ProduceRequest, frame, version=13, offset=header_end)
parts = encode_parts(ProduceResponse(responses=[...]), version=13)
```
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from lakelog.wire.primitives import MAX_REQUEST_ELEMENTS, WireError
from lakelog.wire.schema import Buffer, Message

M = TypeVar("M", bound=Message)

_UNREADABLE = (struct.error, IndexError, UnicodeDecodeError, WireError)
_UNWRITABLE = (struct.error, AttributeError, TypeError, ValueError)


def decode(
    kind: type[M],
    buffer: Buffer,
    version: int,
    offset: int = 0,
    end: int | None = None,
    *,
    max_elements: int = MAX_REQUEST_ELEMENTS,
) -> M:
    """Return the message in exactly `buffer[offset:end]`.

    `bytes` and `records` fields are views of `buffer`, which must not change while they are in use.
    `max_elements` limits the elements of all arrays together. Raises `WireError` for malformed
    bytes, including remaining bytes.
    """
    message, left = decode_prefix(kind, buffer, version, offset, end, max_elements=max_elements)
    if left:
        raise WireError(f"{kind.__name__} v{version}: {left} bytes left over")
    return message


def decode_prefix(
    kind: type[M],
    buffer: Buffer,
    version: int,
    offset: int = 0,
    end: int | None = None,
    *,
    max_elements: int = MAX_REQUEST_ELEMENTS,
) -> tuple[M, int]:
    """Return the message at the start of `buffer[offset:end]` and the number of bytes after it.

    Raises `WireError` like `decode`, except for remaining bytes.
    """
    decoder = kind.__decoders__.get(version) or _new_decoder(kind, version)
    view = (buffer if type(buffer) is memoryview else memoryview(buffer))[offset:end]
    size = len(view)
    try:
        message, position = decoder(view, size, max_elements)
    except _UNREADABLE as error:
        raise WireError(f"{kind.__name__} v{version}: {error}") from error
    if position > size:
        raise WireError(f"{kind.__name__} v{version}: {position - size} bytes are missing")
    return message, size - position


def encode_parts(message: Message, version: int) -> list[Any]:
    """Return the parts of the encoding in their order; each `records` value is a part of its own.

    Raises `WireError` for values that the version cannot carry.
    """
    kind = type(message)
    encoder = kind.__encoders__.get(version) or _new_encoder(kind, version)
    try:
        parts: list[Any] = encoder(message)
    except _UNWRITABLE as error:
        raise WireError(f"{kind.__name__} v{version}: {error}") from error
    return parts


def encode(message: Message, version: int) -> bytes:
    """Return the encoding as one string of bytes; `records` values must be buffers.

    Raises `WireError` for values that the version cannot carry.
    """
    parts = encode_parts(message, version)
    return b"".join(parts)


def _check_version(kind: type[Message], version: int) -> None:
    if version not in kind.__versions__:
        raise WireError(f"{kind.__name__} has versions {kind.__versions__}, not {version}")


def _new_decoder(kind: type[Message], version: int) -> Callable[..., Any]:
    from lakelog.wire.decoder import compile_decoder

    _check_version(kind, version)
    decoder = kind.__decoders__[version] = compile_decoder(kind, version)
    return decoder


def _new_encoder(kind: type[Message], version: int) -> Callable[..., Any]:
    from lakelog.wire.encoder import compile_encoder

    _check_version(kind, version)
    encoder = kind.__encoders__[version] = compile_encoder(kind, version)
    return encoder
