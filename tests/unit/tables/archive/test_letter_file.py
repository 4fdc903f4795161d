from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakelog.tables.archive import letter_file
from lakelog.tables.archive.letter_file import LETTER_SCHEMA, LetterFile
from lakelog.tables.archive.refusals import Refused


def letter(offset: int) -> Refused:
    return Refused("t", 1, offset, offset + 1, "why", bytes([offset]), is_damaged=True)


def test_a_file_has_the_letters_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_file, "_GROUP_ROWS", 2)
    path = tmp_path / "data" / "1.parquet"
    file = LetterFile(path.as_uri(), {})
    for offset in range(0, 10, 2):
        file.add(letter(offset))
    assert file.close() == path.as_uri()
    found = pq.ParquetFile(path)
    assert found.num_row_groups == 3
    table = found.read()
    assert table.schema.equals(LETTER_SCHEMA, check_metadata=True)
    assert table.to_pylist()[1] == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "offsetLast": 3,
        "reason": "why",
        "raw": b"\2",
    }


def test_without_letters_there_is_no_file(tmp_path: Path) -> None:
    file = LetterFile((tmp_path / "1.parquet").as_uri(), {})
    assert file.close() is None
    file.remove()
    assert not list(tmp_path.iterdir())


def test_a_removed_file_leaves_nothing(tmp_path: Path) -> None:
    file = LetterFile((tmp_path / "1.parquet").as_uri(), {})
    file.add(letter(0))
    file.remove()
    assert not list(tmp_path.iterdir())
