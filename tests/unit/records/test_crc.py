from __future__ import annotations

import pytest

from lakelog.records import crc


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),  # the check value of CRC-32C/ISCSI
        (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
    ],
)
def test_checksums_are_castagnolis(data: bytes, value: int) -> None:
    assert crc.crc32c(data) == crc.crc32c(memoryview(data)) == value


def test_a_checksum_is_continued_over_parts() -> None:
    assert crc.crc32c(b"6789", crc.crc32c(b"12345")) == crc.crc32c(b"123456789")


def test_the_first_call_of_a_process_imports_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    first = crc._import_and_run
    monkeypatch.setattr(crc, "crc32c", first)
    assert crc.crc32c(b"6789", crc.crc32c(b"12345")) == 0xE3069283
    assert crc.crc32c is not first
