"""The files of a metadata log in the file system."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnavailable
from lakelog.metadata.store.database import DatabaseFile, note_committed, read_committed


def test_only_the_user_of_the_broker_may_read_the_metadata(tmp_path: Path) -> None:
    database = DatabaseFile(tmp_path / "metadata.db")
    assert not database.exists()
    with closing(database.connect()) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE t (x)")
        files = sorted(tmp_path.iterdir())
        assert len(files) > 1
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert database.exists()


def test_a_statement_is_a_transaction_of_its_own(tmp_path: Path) -> None:
    database = DatabaseFile(tmp_path / "metadata.db")
    with closing(database.connect()) as one, closing(database.connect()) as other:
        one.execute("CREATE TABLE t (x)")
        one.execute("INSERT INTO t VALUES (7)")
        assert not one.in_transaction
        assert other.execute("SELECT x FROM t").fetchall() == [(7,)]


def test_a_folder_that_is_gone_is_an_error_of_the_database(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        DatabaseFile(tmp_path / "gone" / "metadata.db").connect()


def test_the_noted_end_belongs_to_one_database(tmp_path: Path) -> None:
    database, other = DatabaseFile(tmp_path / "metadata.db"), DatabaseFile(tmp_path / "other.db")
    assert database.read_committed() == (0, 0)
    database.note_committed(41, 3)
    assert DatabaseFile(database.path).read_committed() == (41, 3)
    assert other.read_committed() == (0, 0)


def test_a_path_without_the_file_may_get_it_back(tmp_path: Path) -> None:
    database = DatabaseFile(tmp_path / "metadata.db")
    with closing(database.connect()):
        database.check_place()
        away = database.path.rename(tmp_path / "away.db")
        with pytest.raises(MetadataUnavailable, match=r"metadata\.db.*put the file back"):
            database.check_place()
        away.rename(database.path)
        database.check_place()


def test_a_path_with_another_file_is_refused(tmp_path: Path) -> None:
    database, other = DatabaseFile(tmp_path / "metadata.db"), DatabaseFile(tmp_path / "other.db")
    with closing(database.connect()), closing(other.connect()):
        other.path.rename(database.path)
        with pytest.raises(MetadataCorrupt, match="was replaced"):
            database.check_place()


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
