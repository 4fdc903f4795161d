from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog.metadata.errors import (
    MetadataCorrupt,
    MetadataMissing,
    MetadataOffline,
    MetadataUnavailable,
    MetadataUnsupported,
)
from lakelog.metadata.store.api import ControllerTerm, EntryOutcome, MetadataBatch, Snapshot
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.database import DatabaseFile, note_committed, read_committed
from lakelog.metadata.store.sqlite import SqliteLog

WRITER = b"w" * 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of three entries and no process."""
    path = tmp_path / "metadata.db"
    log = SqliteLog(DatabaseFile(path))
    log.open(create=True)
    epoch = log.take_term(1, b"1" * 16, log.controller()).epoch
    for index in range(3):
        batch = MetadataBatch(WRITER, index, epoch, b"payload %d" % index)
        assert log.append(batch, index).outcome is EntryOutcome.DONE
    log.close()
    return path


def _read(path: Path) -> int:
    log = SqliteLog(DatabaseFile(path))
    try:
        log.open(create=False)
        return len(log.read(0).entries)
    finally:
        log.close()


def _execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def test_written_entries_are_read(path: Path) -> None:
    assert _read(path) == 3


class _Contended(DatabaseFile):
    """Another process switches the journal at the same moment: SQLite refuses without a wait."""

    refusals = 2

    def connect(self) -> sqlite3.Connection:
        file = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if "journal_mode" in sql and file.refusals:
                    file.refusals -= 1
                    error = sqlite3.OperationalError("database is locked")
                    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                    raise error
                return super().execute(sql, *values)

        return sqlite3.connect(self.path, isolation_level=None, factory=Connection)


def test_a_file_whose_journal_two_processes_switch_at_once_is_opened(tmp_path: Path) -> None:
    database = _Contended(tmp_path / "metadata.db")
    log = SqliteLog(database)
    log.open(create=True)
    assert database.refusals == 0
    log.close()


def test_two_processes_that_create_the_file_at_once_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one creates its tables after this one has found a file of no program."""
    first, other = (SqliteLog(DatabaseFile(tmp_path / "metadata.db")) for _ in range(2))
    number = SqliteLog._number

    def read(log: SqliteLog, query: str) -> int:
        value = number(log, query)
        if log is first and query == "PRAGMA application_id" and not value:
            monkeypatch.setattr(SqliteLog, "_number", number)
            other.open(create=True)
        return value

    monkeypatch.setattr(SqliteLog, "_number", read)
    first.open(create=True)
    assert first.state().log_id == other.state().log_id
    first.close()
    other.close()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)


def _zero_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8192:12288] = bytes(4096)
    path.write_bytes(data)


def _sql(statement: str) -> Callable[[Path], None]:
    return lambda path: _execute(path, statement)


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _garbage,
        _zero_page,
        _sql("UPDATE entry SET payload = CAST('payload X' AS BLOB) WHERE idx = 1"),
        _sql("UPDATE entry SET controller_epoch = 9 WHERE idx = 1"),
        _sql("DELETE FROM entry WHERE idx = 1"),
        _sql("DELETE FROM entry WHERE idx = 0"),
        _sql("DELETE FROM entry WHERE idx = 2"),
        _sql("PRAGMA application_id = 7"),
    ],
)
def test_damage_is_reported_and_not_repaired(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with pytest.raises(MetadataCorrupt, match=r"metadata\.db"):
        _read(path)


def test_a_flipped_bit_of_a_payload_is_found(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"payload 1") + 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(MetadataCorrupt, match="entry 1"):
        _read(path)


def test_a_damaged_snapshot_is_found(path: Path) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    log.write_snapshot(Snapshot(3, b"snapshot"))
    log.close()
    assert _read(path) == 0
    _execute(path, "UPDATE snapshot SET end = 2")
    with pytest.raises(MetadataCorrupt, match="snapshot"):
        _read(path)


@pytest.mark.parametrize("remains", [None, b""])
def test_a_lost_file_is_missed(path: Path, remains: bytes | None) -> None:
    path.unlink()
    if remains is not None:
        path.write_bytes(remains)
    with pytest.raises(MetadataMissing):
        _read(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    _execute(path, "PRAGMA user_version = 3")
    with pytest.raises(MetadataUnsupported, match="newer version"):
        _read(path)


def test_a_folder_that_is_not_there_is_no_corruption(tmp_path: Path) -> None:
    with pytest.raises(MetadataUnavailable):
        SqliteLog(DatabaseFile(tmp_path / "no" / "metadata.db")).open(create=True)


def test_a_full_device_refuses_and_recovers(path: Path) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    assert log._connection is not None
    log._connection.execute("PRAGMA max_page_count = 9")
    large = MetadataBatch(WRITER, 9, 1, b"x" * 100_000)
    with pytest.raises(MetadataUnavailable, match="full"):
        log.append(large, 3)
    log._connection.execute("PRAGMA max_page_count = 1000000")
    assert log.append(large, 3).outcome is EntryOutcome.DONE
    log.close()


class _FailingCommit(sqlite3.Connection):
    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return super().execute(sql, *arguments)  # type: ignore[arg-type]


def test_after_a_failed_sync_nothing_is_touched_again(path: Path) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    log.close()
    log._connection = sqlite3.connect(path, isolation_level=None, factory=_FailingCommit)
    assert log.append(MetadataBatch(WRITER, 9, 1, b"x"), 3).outcome is EntryOutcome.UNKNOWN
    with pytest.raises(MetadataOffline, match="restart"):
        log.append(MetadataBatch(WRITER, 9, 1, b"x"), 3)
    with pytest.raises(MetadataOffline):
        log.read(0)
    log.close()


def test_a_busy_file_is_unavailable_in_bounded_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakelog.metadata.store.database.BUSY_TIMEOUT_S", 0.05)
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(MetadataUnavailable, match="locked"):
        log.append(MetadataBatch(WRITER, 9, 1, b"x"), 3)
    other.execute("ROLLBACK")
    assert log.append(MetadataBatch(WRITER, 9, 1, b"x"), 3).outcome is EntryOutcome.DONE
    other.close()
    log.close()


def test_two_that_found_the_same_term_do_not_both_get_the_next(path: Path) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    term = log.controller()
    taken = ControllerTerm(2, term.epoch + 1, b"2" * 16)
    assert log.take_term(2, b"2" * 16, term) == taken
    assert log.take_term(3, b"3" * 16, term) == taken == log.controller()
    log.close()


def test_a_log_that_ends_before_its_committed_end_does_not_open(path: Path) -> None:
    """SQLite treats acknowledged frames after a damaged one as a torn end of its journal."""
    note = path.with_name(path.name + "-end")
    end, epoch = read_committed(note)
    assert end == 3
    for committed in ((4, epoch), (3, epoch + 1)):
        note_committed(note, *committed)
        with pytest.raises(MetadataCorrupt, match="committed"):
            _read(path)
    for damaged in (b"", bytes(24), b"x" * 25):
        note.write_bytes(damaged)
        assert _read(path) == 3, "a damaged note is ignored"
        assert read_committed(note) == (3, epoch), "and is rewritten"


def test_a_snapshot_forgets_the_oldest_of_a_thousand_writers(path: Path) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    epoch = log.controller().epoch
    writers = [b"%016d" % number for number in range(1001)]
    for index, writer in enumerate(writers, 3):
        batch = MetadataBatch(writer, 0, epoch, b"")
        assert log.append(batch, index).outcome is EntryOutcome.DONE
    log.write_snapshot(Snapshot(1004, b"all"))
    assert log.position_of(WRITER, 2) is None
    assert log.position_of(writers[0], 0) is None
    assert log.position_of(writers[1], 0) == 4
    log.close()


def _with_marks(path: Path, marks: MemoryMarks) -> SqliteLog:
    log = SqliteLog(DatabaseFile(path), marks)
    log.open(create=False)
    return log


def _seen(path: Path) -> MemoryMarks:
    """Return the mark of a broker that has read all of the file."""
    marks = MemoryMarks()
    log = _with_marks(path, marks)
    log.read(0)
    log.close()
    return marks


def _rebuilt(path: Path, payloads: list[bytes]) -> None:
    """Put another log in the place of the file."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    log = SqliteLog(DatabaseFile(path))
    log.open(create=True)
    epoch = log.take_term(1, b"1" * 16, log.controller()).epoch
    for index, payload in enumerate(payloads):
        log.append(MetadataBatch(b"v" * 16, index, epoch, payload), index)
    log.close()


def test_the_mark_follows_reads_and_appends(path: Path) -> None:
    marks = _seen(path)
    mark = marks.read()
    assert mark is not None
    assert mark.end == 3
    log = _with_marks(path, marks)
    assert log.append(MetadataBatch(WRITER, 9, 1, b"x"), 3).outcome is EntryOutcome.DONE
    log.close()
    now = marks.read()
    assert now is not None
    assert now.end == 4
    assert now.chain != mark.chain
    _with_marks(path, marks).close()


@pytest.mark.parametrize(
    ("payloads", "reason"),
    [
        ([b"payload 0", b"payload 1"], "ends at entry 2, but entry 3 was seen"),
        ([b"payload 0", b"payload 1", b"payload 2"], "another history"),
        ([b"payload 0", b"payload 1", b"payload 2", b"payload 3"], "another history"),
    ],
)
def test_a_file_that_does_not_continue_the_mark_does_not_open(
    path: Path, payloads: list[bytes], reason: str
) -> None:
    marks = _seen(path)
    _rebuilt(path, payloads)
    with pytest.raises(MetadataCorrupt, match=reason):
        _with_marks(path, marks)


def test_a_file_that_was_seen_is_not_created_again(path: Path) -> None:
    marks = _seen(path)
    path.unlink()
    with pytest.raises(MetadataMissing, match="check --metadata"):
        SqliteLog(DatabaseFile(path), marks).open(create=True)


def test_a_trimmed_log_continues_an_old_mark(path: Path) -> None:
    marks = _seen(path)
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    for index in range(3, 203):
        log.append(MetadataBatch(WRITER, index, 1, b"x"), index)
    log.write_snapshot(Snapshot(203, b"all"))
    log.close()
    log = _with_marks(path, marks)
    assert log.read(0).snapshot == Snapshot(203, b"all")
    log.close()
    mark = marks.read()
    assert mark is not None
    assert mark.end == 203


def test_an_older_format_is_refused(path: Path) -> None:
    _execute(path, "PRAGMA user_version = 1")
    with pytest.raises(MetadataUnsupported, match="format 1"):
        _read(path)


def test_a_writer_of_the_present_term_that_is_behind_has_lost_its_place(path: Path) -> None:
    log = SqliteLog(DatabaseFile(path))
    log.open(create=False)
    epoch = log.controller().epoch
    assert log.append(MetadataBatch(WRITER, 9, epoch, b"late"), 2).outcome is EntryOutcome.LOST
    assert log.append(MetadataBatch(WRITER, 9, epoch - 1, b"old"), 2).outcome is EntryOutcome.FENCED
    log.close()


@pytest.mark.parametrize(
    ("code", "is_failure"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, True),
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_IOERR_READ, False),
        (sqlite3.SQLITE_FULL, False),
    ],
)
def test_a_write_that_fails_is_a_failure_of_the_device(
    path: Path, code: int, is_failure: bool
) -> None:
    log, failures = SqliteLog(DatabaseFile(path)), list[None]()
    log.on_device_failure = lambda: failures.append(None)
    error = sqlite3.OperationalError("planted")
    error.sqlite_errorcode = code
    log._note(error)
    assert bool(failures) is is_failure
