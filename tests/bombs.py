"""Small compressed streams of very many zeros, and batches that hold them."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import cramjam

from lakelog.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from lakelog.records.compression import Codec
from lakelog.records.crc import crc32c
from storage_kit import NOW

XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
_CRC_START = 21


def zeros_gzip(size: int) -> bytes:
    """After a full flush a piece of the stream stands for itself and can be repeated."""
    stream = zlib.compressobj(9, wbits=31)
    first = stream.compress(bytes(1 << 24)) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(1 << 24)) + stream.flush(zlib.Z_FULL_FLUSH)
    return first + again * ((size >> 24) - 1) + stream.flush()


def zeros_zstd(size: int) -> bytes:
    """RLE blocks: 4 bytes for 128 KiB of zeros; a 1 MiB window and no content size."""
    blocks = size >> 17
    block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (1 << 17 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x50" + block * (blocks - 1) + last


def zeros_lz4(size: int) -> bytes:
    """The same 4 MiB block of zeros over and over."""
    raw = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    block = len(raw).to_bytes(4, "little") + raw
    return bytes.fromhex("04224d186070 73") + block * (size >> 22) + bytes(4)


def zeros_snappy(size: int) -> bytes:
    raw = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return XERIAL + (len(raw).to_bytes(4, "big") + raw) * (size >> 20)


BOMBS: dict[Codec, Callable[[int], bytes]] = {
    Codec.GZIP: zeros_gzip,
    Codec.ZSTD: zeros_zstd,
    Codec.LZ4: zeros_lz4,
    Codec.SNAPPY: zeros_snappy,
}
"""By codec; the argument is the size of the zeros, a multiple of 16 MiB."""


def batch_with(content: bytes, codec: Codec, *, count: int = 1, time_ms: int = NOW) -> bytearray:
    """A batch that is right from the outside: its header and its checksum fit `content`."""
    batch = bytearray(HEADER_SIZE)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(content)
    fields = (0, length, 0, MAGIC, 0, codec, count - 1, time_ms, time_ms, -1, -1, -1, count)
    HEADER.pack_into(batch, 0, *fields)
    batch += content
    batch[17:_CRC_START] = crc32c(bytes(batch[_CRC_START:])).to_bytes(4, "big")
    return batch
