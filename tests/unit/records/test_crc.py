from __future__ import annotations

import pytest

from lakelog.records.crc import crc32c, crc32c_function


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
    assert crc32c(data) == crc32c(memoryview(data)) == crc32c_function()(data, 0) == value


def test_a_checksum_is_continued_over_parts() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(b"123456789")


def test_the_function_of_a_fresh_process_imports_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lakelog.records import crc

    monkeypatch.setattr(crc, "_native", crc._import_and_run)
    first = crc32c_function()
    assert first(b"123456789", 0) == 0xE3069283
    assert crc32c_function() is not first
