"""The four codecs of record batches; the only module that imports a compression library.

Input of a peer is never trusted: the output goes to a buffer that this module allocates, in steps
of growing size up to `max_bytes`, so that a decompression bomb costs at most this much memory and
time. Declared sizes are hints, which are checked before they are used.

gzip and zstd are plain streams. lz4 is the frame format with independent blocks, because Java's
reader rejects linked blocks. snappy is written with the framing of the xerial library, a 16-byte
header and blocks with a 4-byte length; readers also accept one raw block, which other clients send.

Source: https://kafka.apache.org/documentation/#recordbatch, RFC 8878 (zstd frames), KIP-110.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum

import cramjam

from lakelog.records.batch import CorruptRecord, RecordsTooLarge
from lakelog.runtime.api import Buffer


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


MAX_DECOMPRESSED_BYTES = 64 << 20
"""A default limit for callers, in bytes."""

EXPANSION_MAX = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: 22,
    Codec.LZ4: 255,
    Codec.ZSTD: 1032,
}
"""The maximum ratio of decompressed to compressed bytes of a batch's records, by codec.

gzip: 258 bytes for two bits. snappy: 64 bytes for three, rounded up. lz4: 255 for a byte of a
length. zstd has no useful bound (128 KiB for four bytes); as the offsets of records differ, real
batches stay below twenty.
"""

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_LZ4_LEVEL = 1

_XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 << 10

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_MAX = 128 << 20
"""The window of levels 20 to 22 (KIP-390), which is also the limit of the library."""
_FIRST_GUESS = 64 << 10
_GROWTH = 8


def compress(codec: int, data: Buffer) -> bytes:
    """Return the compressed form of `data`, as it follows the header of a batch.

    Raises `ValueError` for a number that is not a `Codec`.
    """
    return _COMPRESS[Codec(codec)](data)


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes:
    """Return the decompressed content, of at most `max_bytes` bytes.

    Raises `CorruptRecord` for an unknown codec and for damaged input, and `RecordsTooLarge` for
    more output than allowed.
    """
    try:
        work = _DECOMPRESS[codec]
    except KeyError:
        raise CorruptRecord(f"compression codec {codec} does not exist") from None
    content = work(data, max_bytes)
    assert len(content) <= max_bytes, "a decompression bomb costs at most the limit"
    return content


def _identity(data: Buffer) -> bytes:
    return bytes(data)


def _bounded(data: Buffer, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return bytes(data)


def _gzip(data: Buffer) -> bytes:
    return bytes(cramjam.gzip.compress(data, _GZIP_LEVEL))


def _gunzip(data: Buffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(wbits=31)
        try:
            # One byte more than allowed: output of exactly the limit is valid, and more is noticed.
            part = stream.decompress(rest, max_bytes - size + 1)
        except zlib.error as error:
            raise CorruptRecord(f"gzip: {error}") from None
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not stream.eof:
            raise CorruptRecord("gzip: the stream is cut off")
        # RFC 1952 allows several members one after the other, and Java's reader joins them.
        rest = stream.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: Buffer) -> bytes:
    parts: list[Buffer] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _unsnappy_block(view, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptRecord("snappy: the framing header is cut off")
    parts: list[bytes] = []
    position = len(_XERIAL_HEADER)
    left = max_bytes
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= len(view) - position:
            raise CorruptRecord(f"snappy: a block of {size} bytes does not fit")
        part = _unsnappy_block(view[position : position + size], left)
        left -= len(part)
        parts.append(part)
        position += size
    return b"".join(parts)


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    if not block:
        raise CorruptRecord("snappy: an empty block")
    try:
        # The block declares its size, so check it before allocating the output.
        size = int(cramjam.snappy.decompress_raw_len(block))
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > len(block) * EXPANSION_MAX[Codec.SNAPPY]:
            raise CorruptRecord(f"snappy: {len(block)} bytes cannot become {size}")
        output = bytearray(size)
        written = int(cramjam.snappy.decompress_raw_into(block, output)) if size else 0
    except cramjam.DecompressionError as error:
        raise CorruptRecord(f"snappy: {error}") from None
    if written != size:
        raise CorruptRecord(f"snappy: {written} bytes instead of {size}")
    return bytes(output)


def _lz4(data: Buffer) -> bytes:
    stream = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    stream.compress(bytes(data))
    return bytes(stream.finish())


def _unlz4(data: Buffer, max_bytes: int) -> bytes:
    return _grow("lz4", cramjam.lz4.decompress_into, data, _FIRST_GUESS, max_bytes)


def _zstd(data: Buffer) -> bytes:
    return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL))


def _unzstd(data: Buffer, max_bytes: int) -> bytes:
    """Decompress zstd, of which a stream may declare a large window.

    A window takes memory only for existing output, so `max_bytes` limits this memory, too.
    """
    window, content = _zstd_frame(data)
    if window > _ZSTD_WINDOW_MAX:
        raise CorruptRecord(f"zstd: a window of {window} bytes; at most 128 MiB are taken")
    if content > max_bytes:
        raise _too_large(max_bytes)
    guess = content or _FIRST_GUESS
    return _grow("zstd", cramjam.zstd.decompress_into, data, guess, max_bytes)


def _zstd_frame(data: Buffer) -> tuple[int, int]:
    """Return the declared window and content sizes of the first frame; 0 if undeclared."""
    head = bytes(memoryview(data)[:18])
    if head[:4] != _ZSTD_MAGIC or len(head) < 6:
        raise CorruptRecord("zstd: no frame header")
    descriptor = head[4]
    single_segment = descriptor & 0x20 != 0
    position = 5
    window = 0
    if not single_segment:
        base = 1 << (10 + (head[5] >> 3))
        window = base + (base >> 3) * (head[5] & 7)
        position = 6
    position += (0, 1, 2, 4)[descriptor & 3]
    width = (int(single_segment), 2, 4, 8)[descriptor >> 6]
    content = int.from_bytes(head[position : position + width], "little")
    return window, content + 256 if width == 2 else content


def _grow(
    name: str,
    decompress_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    guess: int,
    max_bytes: int,
) -> bytes:
    """Try larger and larger buffers, because the library has one error for all failures."""
    size = min(guess, max_bytes)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if size == max_bytes:
                text = f"{name}: {error}, or more than {max_bytes} bytes"
                raise RecordsTooLarge(text) from None
            size = min(size * _GROWTH, max_bytes)
            continue
        return bytes(memoryview(output)[:written])


def _too_large(max_bytes: int) -> RecordsTooLarge:
    return RecordsTooLarge(f"the records are larger than {max_bytes} bytes when decompressed")


_COMPRESS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.NONE: _identity,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: dict[int, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: _bounded,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
