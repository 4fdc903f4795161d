"""Frames and headers around the messages of a connection.

```
frame             int32 size of the rest, header, message
request header    int16 api key, int16 version, int32 correlation id, int16-length client id or null
response header   int32 correlation id
```
From the first flexible version of an API on, both headers end with tagged fields; the client id
keeps its int16 length. Only the header of the ApiVersions response never has tagged fields: a
client reads it before it knows the versions of the broker.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from lakelog.wire.codec import decode, encode_parts
from lakelog.wire.primitives import MAX_RESPONSE_ELEMENTS, WireError, skip_tagged_fields
from lakelog.wire.schema import Buffer, Message

API_VERSIONS_KEY = 18
FRAME_SIZE_BYTES = 4
"""The size of the length at the start of a frame."""

_REQUEST_START = struct.Struct(">hhih")
_SIZE_AND_ID = struct.Struct(">ii")
_SIZE_ID_AND_NO_TAGS = struct.Struct(">iiB")
_ID = struct.Struct(">i")
_NO_TAGS = b"\x00"


class FramedApi(Protocol):
    """The properties of an API that framing needs; `lakelog.protocol.api.Api` has them."""

    key: int
    flexible_from: int
    response: type[Message]


def decode_request_header(
    buffer: Buffer, offset: int, end: int, flexible: bool
) -> tuple[int, str | None, int]:
    """Return correlation id, client id and start of the message, of the request at `offset`.

    The client id is arbitrary text of up to 32,767 bytes. Raises `WireError`.
    """
    position = offset + _REQUEST_START.size
    if position > end:
        raise WireError("a request shorter than its header")
    _, _, correlation_id, length = _REQUEST_START.unpack_from(buffer, offset)
    client_id = None
    if length >= 0:
        stop = position + length
        if stop > end:
            raise WireError(f"a client id of {length} bytes exceeds the request")
        try:
            client_id = str(buffer[position:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"client id: {error}") from error
        position = stop
    elif length != -1:
        raise WireError(f"a client id of length {length}")
    if flexible:
        if position < end and buffer[position] == 0:
            position += 1
        else:
            position = _skip_tags(buffer, position, end)
    return correlation_id, client_id, position


def _skip_tags(buffer: Buffer, position: int, end: int) -> int:
    if position >= end:
        raise WireError("a header without its tagged fields")
    count = buffer[position]
    position += 1
    if count == 0:
        return position
    try:
        return skip_tagged_fields(memoryview(buffer)[:end], position, count, end)
    except IndexError as error:
        raise WireError("a header that ends within its tagged fields") from error


def encode_request(
    api: FramedApi, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Any]:
    """Return a frame as a list of buffers; record batches are separate, unchanged buffers.

    Raises `WireError` for values that the version cannot carry.
    """
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    head = _REQUEST_START.pack(api.key, version, correlation_id, length) + name
    if version >= api.flexible_from:
        head += _NO_TAGS
    parts = encode_parts(message, version)
    size = len(head) + sum(map(len, parts))
    parts[0] = _ID.pack(size) + head + parts[0]
    return parts


def encode_response(
    api: FramedApi, version: int, correlation_id: int, message: Message
) -> list[Any]:
    """Return a frame as a list of parts; records may be ranges of files, whose size is their `len`.

    Raises `WireError` for values that the version cannot carry.
    """
    parts = encode_parts(message, version)
    # The size is the sum of all parts; `len` of a range of a file is its size in bytes, so a frame
    # can be sized before the file is read.
    size = 4 + (len(parts[0]) if len(parts) == 1 else sum(map(len, parts)))
    if version >= api.flexible_from and api.key != API_VERSIONS_KEY:
        head = bytearray(_SIZE_ID_AND_NO_TAGS.pack(size + 1, correlation_id, 0))
    else:
        head = bytearray(_SIZE_AND_ID.pack(size, correlation_id))
    head += parts[0]
    parts[0] = head
    return parts


def decode_response(api: FramedApi, version: int, buffer: Buffer) -> tuple[int, Any]:
    """Return correlation id and message of a frame, given without its size.

    Raises `WireError` for malformed bytes, including bytes after the message.
    """
    end = len(buffer)
    position = _ID.size
    if end < position:
        raise WireError("a response shorter than its header")
    (correlation_id,) = _ID.unpack_from(buffer)
    if version >= api.flexible_from and api.key != API_VERSIONS_KEY:
        position = _skip_tags(buffer, position, end)
    message = decode(
        api.response, buffer, version, position, end, max_elements=MAX_RESPONSE_ELEMENTS
    )
    return correlation_id, message
