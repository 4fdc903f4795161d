from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakelog.metadata.store.committed import note_committed, read_committed


def test_a_note_replaces_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db-end"
    assert read_committed(path) == (0, 0)
    path.write_bytes(b"x" * 100)
    note_committed(path, 1 << 40, 7)
    assert len(path.read_bytes()) == 24
    note_committed(path, (1 << 40) + 1, 8)
    assert read_committed(path) == ((1 << 40) + 1, 8)


@pytest.mark.parametrize("byte", [0, 15, 16, 19, 20, 23])
def test_a_flipped_bit_voids_the_note(
    tmp_path: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metadata.db-end"
    note_committed(path, 5, 2)
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert read_committed(path) == (0, 0)
    assert str(path) in caplog.text


@pytest.mark.parametrize("size", [0, 1, 23, 25])
def test_a_note_of_another_size_is_void(tmp_path: Path, size: int) -> None:
    path = tmp_path / "metadata.db-end"
    note_committed(path, 5, 2)
    path.write_bytes((path.read_bytes() + b"\0")[:size])
    assert read_committed(path) == (0, 0)
