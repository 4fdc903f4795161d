from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.metadata.errors import MetadataNotEmpty, MetadataUnavailable
from lakelog.metadata.store.api import LogState, Snapshot
from lakelog.metadata.store.database import DatabaseFile
from lakelog.metadata.store.loading import load_file
from lakelog.metadata.store.sqlite import SqliteLog

STATE = LogState(b"i" * 16, 41, b"c" * 16, 7)


def test_the_file_holds_the_state_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    load_file(path, STATE, b"records")
    assert [file.name for file in tmp_path.iterdir()] == ["metadata.db"]
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    assert log.state() == STATE
    assert log.read(0).snapshot == Snapshot(41, b"records")
    log.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-end"])
def test_files_of_another_log_are_not_touched(tmp_path: Path, suffix: str) -> None:
    other = tmp_path / f"metadata.db{suffix}"
    other.write_bytes(b"other")
    with pytest.raises(MetadataNotEmpty, match=other.name):
        load_file(tmp_path / "metadata.db", STATE, b"records")
    assert other.read_bytes() == b"other"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetadataUnavailable, match="no/metadata"):
        load_file(tmp_path / "no" / "metadata.db", STATE, b"records")


def test_a_load_keeps_no_file_open(tmp_path: Path) -> None:
    before = sorted(Path("/dev/fd").iterdir())
    load_file(tmp_path / "metadata.db", STATE, b"records")
    assert sorted(Path("/dev/fd").iterdir()) == before
