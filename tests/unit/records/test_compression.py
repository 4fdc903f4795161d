from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
import time
import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bombs import BOMBS, XERIAL
from lakelog.records.batch import CorruptRecord
from lakelog.records.compression import Codec, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LIMIT = 1 << 20


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=3000), times=st.integers(1, 60), codec=st.sampled_from(list(Codec)))
def test_round_trip(data: bytes, times: int, codec: Codec) -> None:
    content = data * times
    packed = compress(codec, memoryview(content))
    assert decompress(codec, memoryview(packed), len(content)) == content


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    content = bytes(100_000)
    packed = compress(codec, content)
    assert decompress(codec, packed, 100_000) == content
    with pytest.raises(CorruptRecord):
        decompress(codec, packed, 99_999)


def test_the_limit_holds_without_compression() -> None:
    with pytest.raises(CorruptRecord):
        decompress(Codec.NONE, b"12", 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"lakelog" * 40)
    whole = set(range(len(packed)))
    if codec is Codec.SNAPPY:
        whole -= {len(XERIAL)}  # no block at all is an empty content
    for size in whole:
        with pytest.raises(CorruptRecord):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_corrupt(codec: int) -> None:
    with pytest.raises(CorruptRecord):
        decompress(codec, b"", LIMIT)


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
def test_a_gigabyte_of_zeros_is_refused_without_making_it(codec: Codec) -> None:
    packed = BOMBS[codec](1 << 30)
    tracemalloc.start()
    started = time.monotonic()
    with pytest.raises(CorruptRecord):
        decompress(codec, packed, 4 * LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.monotonic() - started < 1
    assert peak < 16 * LIMIT


def test_the_bombs_are_real() -> None:
    """Otherwise the test above would be content with damaged input."""
    one_block = b"\x28\xb5\x2f\xfd\x00\x50" + (1 << 17 << 3 | 3).to_bytes(3, "little") + b"\0"
    assert decompress(Codec.ZSTD, one_block, LIMIT) == bytes(1 << 17)
    raw = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
    frame = bytes.fromhex("04224d186070 73") + len(raw).to_bytes(4, "little") + raw + bytes(4)
    assert decompress(Codec.LZ4, frame, 4 << 20) == bytes(4 << 20)
    small = BOMBS[Codec.SNAPPY](64 << 20)[
        : 16 + 4 + len(bytes(cramjam.snappy.compress_raw(bytes(1 << 20))))
    ]
    assert decompress(Codec.SNAPPY, small, 1 << 20) == bytes(1 << 20)


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0, -(2**31)])
def test_lying_snappy_block_lengths(size: int) -> None:
    block = bytes(cramjam.snappy.compress_raw(b"abc"))
    with pytest.raises(CorruptRecord):
        decompress(Codec.SNAPPY, XERIAL + size.to_bytes(4, "big", signed=True) + block, LIMIT)


@pytest.mark.parametrize("declared", ["ffffffff0f", "8080808004", "808040"])
def test_a_raw_snappy_block_that_declares_too_much(declared: str) -> None:
    block = bytes.fromhex(declared) + b"\x08abc"
    for framed in (block, XERIAL + len(block).to_bytes(4, "big") + block):
        with pytest.raises(CorruptRecord):
            decompress(Codec.SNAPPY, framed, 4 * LIMIT)


def test_raw_snappy_is_read() -> None:
    content = b"raw, as some clients write it" * 10
    packed = bytes(cramjam.snappy.compress_raw(content))
    assert decompress(Codec.SNAPPY, packed, LIMIT) == content


def test_zstd_frames_that_declare_too_much() -> None:
    eight_bytes = b"\x28\xb5\x2f\xfd\xe0" + (1 << 30).to_bytes(8, "little") + b"\x01\0\0"
    window = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\0\0"
    for frame, reason in ((eight_bytes, "larger"), (window, "window")):
        with pytest.raises(CorruptRecord, match=reason):
            decompress(Codec.ZSTD, frame, LIMIT)


@pytest.mark.parametrize("window_log", [25, 26, 27])
def test_a_zstd_window_takes_the_memory_of_what_went_through_it(window_log: int) -> None:
    """Streams of levels 20 to 22 announce these, however short they are (KIP-390)."""
    command = [sys.executable, "-c", _MEASURE, str(window_log)]
    measured = subprocess.run(command, capture_output=True, text=True, check=True)
    short, much = map(int, measured.stdout.split())
    assert short < 4 << 10, "KiB"
    assert much < 16 << 10, "4 MiB of output are allowed, in the window, a buffer and its copy"


_MEASURE = r"""
import sys
from lakelog.records.compression import decompress
from lakelog.records.batch import CorruptRecord

def highest():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])

window = bytes([0, (int(sys.argv[1]) - 10) << 3])
block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + bytes(1)
last = (1 << 17 << 3 | 1 << 1 | 1).to_bytes(3, "little") + bytes(1)
short, bomb = (b"\x28\xb5\x2f\xfd" + window + block * count + last for count in (0, 511))
decompress(4, b"\x28\xb5\x2f\xfd\x00\x50" + last, 1 << 17)
before = highest()
assert len(decompress(4, short, 4 << 20)) == 1 << 17
print(highest() - before)
try:
    decompress(4, bomb, 4 << 20)
except CorruptRecord:
    print(highest() - before)
"""


def test_a_zstd_frame_that_declares_too_little() -> None:
    packed = bytearray(cramjam.zstd.compress(bytes(1000)))
    assert packed[4] >> 6 == 1, "two bytes of content size expected"
    packed[5:7] = (10).to_bytes(2, "little")
    with pytest.raises(CorruptRecord):
        decompress(Codec.ZSTD, packed, LIMIT)


def test_several_gzip_members_share_the_limit() -> None:
    packed = gzip.compress(bytes(600)) + gzip.compress(bytes(600))
    assert decompress(Codec.GZIP, packed, 1200) == bytes(1200)
    with pytest.raises(CorruptRecord):
        decompress(Codec.GZIP, packed, 1199)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200), codec=st.sampled_from(CODECS), prefix=st.booleans())
def test_garbage_is_corrupt_or_bounded(data: bytes, codec: Codec, prefix: bool) -> None:
    content = compress(codec, b"some text")[:12] + data if prefix else data
    with contextlib.suppress(CorruptRecord):
        assert len(decompress(codec, content, 1000)) <= 1000
