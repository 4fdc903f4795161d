"""The metadata log in one SQLite file: synchronous, one thread, one connection.

WAL with `synchronous=FULL`: an append returns after its fsync. Every append is one IMMEDIATE
transaction that checks the controller epoch and the end of the log, so that SQLite's own lock
orders the processes that share the file. SQLite does not checksum its pages: each row carries a
CRC-32 of its contents, and the rows of the log must be consecutive. Each entry carries the chained
checksum of the log so far (`chain.py`): a file that does not continue the state that this handle or
its data folder has seen is refused, as it was restored from a backup or replaced.

The log id is zero: the random id of the first writer distinguishes two logs.

A call that fails before COMMIT, or for lack of space, was not carried out. After any other failure
in COMMIT the outcome is unknown, and the file is not used again before a restart: after a failed
fsync the kernel marks the lost pages as written.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable
from typing import Any

from lakelog.base.errors import is_shortage
from lakelog.metadata.errors import (
    MetadataCorrupt,
    MetadataFull,
    MetadataMissing,
    MetadataOffline,
    MetadataUnavailable,
    MetadataUnsupported,
)
from lakelog.metadata.store import api
from lakelog.metadata.store.chain import LogHead, Mark, Marks, MemoryMarks, first_link, next_link
from lakelog.metadata.store.database import BUSY_TIMEOUT_S, Database

_APPLICATION_ID = 0x4C4B4C47
_FORMAT_VERSION = 2
_NOT_COMMITTED = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}
_READ_ERRORS = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ}
_WRITERS_KEPT = 1000
_BUSY_PAUSE_S = 0.005
_NO_LOG_ID = bytes(16)
_LOST = (
    "the file was restored from a backup, replaced, or belongs to another cluster; check "
    "--metadata or restore the newest state of the file"
)

_HOLDER = (
    "CREATE TABLE IF NOT EXISTS holder (only INTEGER PRIMARY KEY CHECK (only = 0),"
    " controller_epoch INTEGER NOT NULL, incarnation_id BLOB NOT NULL)"
)
"""The process that took the term of this epoch. Earlier versions neither write nor read it, so the
row of another epoch means nothing."""
_SCHEMA = (
    "CREATE TABLE entry (idx INTEGER PRIMARY KEY, controller_epoch INTEGER NOT NULL,"
    " writer_id BLOB NOT NULL, serial INTEGER NOT NULL, payload BLOB NOT NULL,"
    " crc INTEGER NOT NULL, chain BLOB NOT NULL)",
    "CREATE TABLE snapshot (only INTEGER PRIMARY KEY CHECK (only = 0), end INTEGER NOT NULL,"
    " payload BLOB NOT NULL, crc INTEGER NOT NULL, chain BLOB NOT NULL)",
    "CREATE TABLE writer (writer_id BLOB PRIMARY KEY, serial INTEGER NOT NULL,"
    " idx INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE state (only INTEGER PRIMARY KEY CHECK (only = 0), end INTEGER NOT NULL,"
    " controller_id INTEGER NOT NULL, controller_epoch INTEGER NOT NULL, chain BLOB NOT NULL,"
    " log_id BLOB NOT NULL)",
    f"INSERT INTO state VALUES (0, 0, -1, 0, x'{first_link(_NO_LOG_ID).hex()}',"
    f" x'{_NO_LOG_ID.hex()}')",
    _HOLDER,
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_FORMAT_VERSION}",
)


class SqliteLog:
    """Not thread-safe; the connection belongs to the thread that calls `open`."""

    def __init__(
        self,
        database: Database,
        marks: Marks | None = None,
        *,
        entries_kept: int = api.ENTRIES_KEPT,
    ) -> None:
        """Without `marks`, nothing of an earlier process is compared."""
        self._database = database
        self._marks = marks or MemoryMarks()
        self._path = database.path
        self._entries_kept = entries_kept
        self._seen = Mark(_NO_LOG_ID, 0, first_link(_NO_LOG_ID))
        self._connection: sqlite3.Connection | None = None
        self._failure: str | None = None
        self.on_device_failure: Callable[[], object] = tuple
        """Called before an I/O error of a write or sync is raised or returned. A lack of space is
        none."""

    def open(self, *, create: bool) -> None:
        """Open the file, and create its tables with `create`.

        Raises `MetadataMissing`, `MetadataCorrupt` or `MetadataUnsupported`.
        """
        try:
            create = create and self._marks.read() is None
            if not create and not self._database.exists():
                raise MetadataMissing(
                    f"{self._path} is missing, but there are logs that it described; restore the "
                    "file, or check --metadata"
                )
            self._connection = self._connect()
            self._prepare(create)
            self._compare_with_mark()
        except OSError as error:
            self.close()
            raise MetadataUnavailable(f"{self._path}: {error}") from error
        except sqlite3.Error as error:
            self.close()
            raise self._opening_error(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. SQLite rolls an open transaction back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def check_place(self) -> None:
        """Raise `MetadataUnavailable` without a file, `MetadataCorrupt` after its replacement."""
        self._placed_connection()

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed.

        Raises `MetadataOffline`, `MetadataUnavailable` and `MetadataCorrupt`.
        """
        row = self._row("PRAGMA data_version", ())
        assert row is not None
        return int(row[0])

    def append(self, batch: api.MetadataBatch, expected_end: int) -> api.AppendOutcome:
        """Append a batch as entry `expected_end`; return the outcome.

        Raises `MetadataFull` without space, `MetadataUnavailable` if nothing was written, and
        `MetadataOffline` after a failure of the device.
        """
        connection = self._begin()
        try:
            end, epoch, chain = connection.execute(
                "SELECT end, controller_epoch, chain FROM state"
            ).fetchone()
            self._head.check(end, chain)
            if epoch != batch.controller_epoch or end != expected_end:
                connection.execute("ROLLBACK")
                # FENCED goes before LOST: a writer with an old term must not try the next index.
                fenced = epoch != batch.controller_epoch
                return api.AppendOutcome(
                    api.EntryOutcome.FENCED if fenced else api.EntryOutcome.LOST, end
                )
            chain = next_link(chain, end, batch)
            self._insert(connection, batch, end, chain)
        except MetadataCorrupt:
            connection.execute("ROLLBACK")
            raise
        except sqlite3.Error as error:
            raise self._not_done(connection, error) from error
        answer = self._commit(connection, end + 1)
        if answer.outcome is api.EntryOutcome.DONE:
            self._see(end + 1, chain)
        return answer

    def position_of(self, writer_id: bytes, serial: int) -> int | None:
        """Return the index of the writer's newest batch if it has that serial.

        Raises `MetadataOffline`, `MetadataUnavailable` and `MetadataCorrupt`.
        """
        row = self._row(
            "SELECT idx FROM writer WHERE writer_id = ? AND serial = ?", (writer_id, serial)
        )
        return None if row is None else int(row[0])

    def read(self, from_index: int) -> api.LogRead:
        """Return the entries from an index on, as of one moment. Raises `MetadataCorrupt`."""
        connection = self._placed_connection()
        try:
            connection.execute("BEGIN")
            try:
                read, chain = self._read(connection, from_index)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._reading_error(error) from error
        if chain is not None:
            start = from_index if read.snapshot is None else read.snapshot.end
            self._see(start + len(read.entries), chain)
        return read

    def state(self) -> api.LogState:
        """Return the current end of the log.

        Raises `MetadataOffline`, `MetadataUnavailable` and `MetadataCorrupt`.
        """
        row = self._row("SELECT log_id, end, chain, controller_epoch FROM state", ())
        assert row is not None
        return api.LogState(*row)

    def load(self, state: api.LogState, payload: bytes) -> None:
        """Make a log that was just created end at `state`.

        Raises `MetadataFull`, `MetadataUnavailable` and `MetadataOffline`.
        """
        connection = self._begin()
        try:
            connection.execute(
                "UPDATE state SET log_id = ?, end = ?, chain = ?, controller_epoch = ?", state
            )
            connection.execute(
                "INSERT INTO snapshot VALUES (0, ?, ?, ?, ?)",
                (state.end, payload, _snapshot_crc(state.end, payload), state.chain),
            )
        except sqlite3.Error as error:
            raise self._not_done(connection, error) from error
        if self._commit(connection, state.end).outcome is not api.EntryOutcome.DONE:
            raise MetadataOffline(self._failure)

    def write_snapshot(self, snapshot: api.Snapshot) -> None:
        """Replace an older snapshot, and trim entries well before the new one.

        Raises `MetadataFull`, `MetadataUnavailable` and `MetadataOffline`.
        """
        connection = self._begin()
        try:
            newest = self._number("SELECT coalesce(max(end), 0) FROM snapshot")
            chain = self._chain_at(connection, snapshot.end)
            if newest > snapshot.end or chain is None:
                connection.execute("ROLLBACK")
                if newest > snapshot.end:
                    return
                raise MetadataUnavailable(f"{self._path}: entry {snapshot.end - 1} was trimmed")
            assert snapshot.end <= self._committed()[0], "a snapshot is of committed entries"
            crc = _snapshot_crc(snapshot.end, snapshot.payload)
            connection.execute(
                "INSERT INTO snapshot VALUES (0, ?, ?, ?, ?) ON CONFLICT (only) DO UPDATE"
                " SET end = excluded.end, payload = excluded.payload, crc = excluded.crc,"
                " chain = excluded.chain WHERE excluded.end > end",
                (snapshot.end, snapshot.payload, crc, chain),
            )
            connection.execute(
                "DELETE FROM entry WHERE idx < ?", (snapshot.end - self._entries_kept,)
            )
            connection.execute(
                "DELETE FROM writer WHERE writer_id NOT IN"
                " (SELECT writer_id FROM writer ORDER BY idx DESC LIMIT ?)",
                (_WRITERS_KEPT,),
            )
        except sqlite3.Error as error:
            raise self._not_done(connection, error) from error
        if self._commit(connection, 0).outcome is not api.EntryOutcome.DONE:
            raise MetadataOffline(self._failure)

    def controller(self) -> api.ControllerTerm:
        """Return the current term; broker -1 at epoch 0 before the first election.

        Raises `MetadataOffline`, `MetadataUnavailable` and `MetadataCorrupt`.
        """
        row = self._row(
            "SELECT controller_id, controller_epoch, coalesce(incarnation_id, x'')"
            " FROM state LEFT JOIN holder USING (controller_epoch)",
            (),
        )
        assert row is not None
        return api.ControllerTerm(int(row[0]), int(row[1]), row[2])

    def take_term(
        self, broker_id: int, incarnation_id: bytes, after: api.ControllerTerm
    ) -> api.ControllerTerm:
        """Begin a term of this process unless a newer term than `after` exists; return the term.

        Raises `MetadataFull`, `MetadataUnavailable`, and `MetadataOffline` if the outcome is
        unknown.
        """
        connection = self._begin()
        try:
            taken = connection.execute(
                "UPDATE state SET controller_id = ?, controller_epoch = controller_epoch + 1"
                " WHERE controller_epoch = ?",
                (broker_id, after.epoch),
            )
            if taken.rowcount:
                row = (after.epoch + 1, incarnation_id)
                connection.execute("INSERT OR REPLACE INTO holder VALUES (0, ?, ?)", row)
        except sqlite3.Error as error:
            raise self._not_done(connection, error) from error
        if self._commit(connection, 0).outcome is not api.EntryOutcome.DONE:
            raise MetadataOffline(self._failure)
        term = self.controller()
        assert term.epoch > after.epoch, "an election ends with a newer term, of whichever broker"
        return term

    def end_term(self, epoch: int) -> api.ControllerTerm:
        """End the term of this epoch, if it is in force; return the term. Raises as `take_term`."""
        term = self.controller()
        return self.take_term(-1, b"", term) if term.epoch == epoch else term

    def _connect(self) -> sqlite3.Connection:
        connection = self._database.connect()
        _use_journal(connection)
        # NORMAL would sync only at checkpoints: a power failure could undo acknowledged commits.
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _prepare(self, create: bool) -> None:
        connection = self._open_connection()
        # One snapshot for all reads: another process may create the tables meanwhile.
        connection.execute("BEGIN")
        application_id = self._number("PRAGMA application_id")
        version = self._number("PRAGMA user_version")
        tables = self._number("SELECT count(*) FROM sqlite_schema")
        connection.execute("COMMIT")
        if application_id == 0 and tables == 0:
            if not create:
                raise MetadataMissing(f"{self._path} is empty, but there are logs it described")
            self._create(connection)
        elif application_id != _APPLICATION_ID:
            raise MetadataCorrupt(f"{self._path} is another program's database")
        elif version > _FORMAT_VERSION:
            raise MetadataUnsupported(
                f"{self._path} has format {version} of a newer version of lakelog"
            )
        elif version < _FORMAT_VERSION:
            raise MetadataUnsupported(
                f"{self._path} has format {version} of a version of lakelog before 0.1.0; this "
                "version reads format 2 only"
            )
        else:
            connection.execute(_HOLDER)
        # SQLite itself finds damage only where it reads.
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise MetadataCorrupt(f"{self._path} is damaged: {problem}")
        self._compare_with_committed()

    def _compare_with_committed(self) -> None:
        """Raise `MetadataCorrupt` if acknowledged entries or terms are missing."""
        stored, committed = self._committed(), self._database.read_committed()
        if stored[0] < committed[0] or stored[1] < committed[1]:
            raise MetadataCorrupt(
                f"{self._path} or {self._path.name}-wal is damaged: its end and controller epoch "
                f"are {stored}, but {committed} was committed"
            )
        self._database.note_committed(*stored)

    def _compare_with_mark(self) -> None:
        """Raise `MetadataCorrupt` unless the file continues the mark of the data folder."""
        connection = self._open_connection()
        end, chain, log_id = connection.execute("SELECT end, chain, log_id FROM state").fetchone()
        mark = self._marks.read()
        self._seen = mark or Mark(log_id, 0, first_link(log_id))
        if log_id != self._seen.log_id:
            raise MetadataCorrupt(f"{self._path} is another log than this data folder's: {_LOST}")
        self._head.check(end, chain)
        self._head.check(self._seen.end, self._chain_at(connection, self._seen.end))

    @property
    def _head(self) -> LogHead:
        return LogHead(str(self._path), self._seen, _LOST)

    def _see(self, end: int, chain: bytes) -> None:
        """Keep a verified state of the log; an old mark is never wrong."""
        if end <= self._seen.end:
            return
        self._seen = Mark(self._seen.log_id, end, chain)
        try:
            self._marks.keep(self._seen)
        except OSError as error:
            if not is_shortage(error):
                self.on_device_failure()

    def _chain_at(self, connection: sqlite3.Connection, index: int) -> bytes | None:
        """Return the stored chain before an entry, or none if it was trimmed."""
        if index == 0:
            return first_link(self._seen.log_id)
        row = connection.execute(
            "SELECT chain FROM entry WHERE idx = ? UNION SELECT chain FROM state WHERE end = ?"
            " UNION SELECT chain FROM snapshot WHERE end = ?",
            (index - 1, index, index),
        ).fetchone()
        return None if row is None else row[0]

    def _committed(self) -> tuple[int, int]:
        row = self._fetch(self._open_connection(), "SELECT end, controller_epoch FROM state", ())
        if row is None:
            raise MetadataCorrupt(f"{self._path} is damaged: it has no state")
        return int(row[0]), int(row[1])

    def _create(self, connection: sqlite3.Connection) -> None:
        """Create the tables, unless another process that found the same empty file did so first."""
        connection.execute("BEGIN IMMEDIATE")
        if self._number("PRAGMA application_id") == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")

    def _read(
        self, connection: sqlite3.Connection, from_index: int
    ) -> tuple[api.LogRead, bytes | None]:
        """Return the entries and the chain after them."""
        end, tail = connection.execute("SELECT end, chain FROM state").fetchone()
        self._head.check(end, tail)
        first = self._number("SELECT coalesce(min(idx), -1) FROM entry")
        kept = from_index >= end or 0 <= first <= from_index
        # A reader whose next entry was trimmed starts from the snapshot.
        snapshot = None if kept and from_index else self._read_snapshot(connection)
        start = from_index if snapshot is None else snapshot.end
        batches = self._batches(connection, start)
        if start + len(batches) < end:
            raise MetadataCorrupt(f"{self._path}: entries before {end} are missing")
        chain = self._head.follow(start, self._chain_at(connection, start), batches)
        if start <= end and chain not in (None, tail):
            raise self._head.forked()
        entries = (
            api.Entry(index, batch.payload) for index, (batch, _) in enumerate(batches, start)
        )
        return api.LogRead(snapshot, tuple(entries)), chain

    def _batches(
        self, connection: sqlite3.Connection, start: int
    ) -> list[tuple[api.MetadataBatch, bytes]]:
        """Return the batches from an entry on with their chains."""
        rows = connection.execute(
            "SELECT idx, controller_epoch, writer_id, serial, payload, crc, chain FROM entry"
            " WHERE idx >= ? ORDER BY idx",
            (start,),
        )
        batches: list[tuple[api.MetadataBatch, bytes]] = []
        for index, epoch, writer_id, serial, payload, crc, chain in rows:
            expected = start + len(batches)
            if index != expected or crc != _entry_crc(index, epoch, writer_id, serial, payload):
                raise MetadataCorrupt(f"{self._path}: entry {expected} is missing or damaged")
            batches.append((api.MetadataBatch(writer_id, serial, epoch, payload), chain))
        return batches

    def _read_snapshot(self, connection: sqlite3.Connection) -> api.Snapshot | None:
        row = connection.execute("SELECT end, payload, crc FROM snapshot").fetchone()
        if row is None:
            return None
        if row[2] != _snapshot_crc(row[0], row[1]):
            raise MetadataCorrupt(f"{self._path}: the snapshot is damaged")
        return api.Snapshot(row[0], row[1])

    def _insert(
        self, connection: sqlite3.Connection, batch: api.MetadataBatch, end: int, chain: bytes
    ) -> None:
        fields = (end, batch.controller_epoch, batch.writer_id, batch.serial, batch.payload)
        connection.execute(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", (*fields, _entry_crc(*fields), chain)
        )
        connection.execute(
            "INSERT INTO writer VALUES (?, ?, ?) ON CONFLICT (writer_id) DO UPDATE"
            " SET serial = excluded.serial, idx = excluded.idx",
            (batch.writer_id, batch.serial, end),
        )
        connection.execute("UPDATE state SET end = ?, chain = ?", (end + 1, chain))

    def _open_connection(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise MetadataOffline(self._failure)
        if self._connection is None:
            raise MetadataUnavailable(f"{self._path} is not open")
        return self._connection

    def _placed_connection(self) -> sqlite3.Connection:
        """Return the connection if the path still names its file; for the begin of a call."""
        connection = self._open_connection()
        self._database.check_place()
        return connection

    def _begin(self) -> sqlite3.Connection:
        connection = self._placed_connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        return connection

    def _commit(self, connection: sqlite3.Connection, end: int) -> api.AppendOutcome:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF in _NOT_COMMITTED:
                raise self._not_done(connection, error) from error
            self._note(error)
            # After a failed fsync SQLite may read pages that the device does not have.
            self._failure = f"{self._path}: {error}; restart to recover"
            return api.AppendOutcome(api.EntryOutcome.UNKNOWN, -1)
        try:
            self._database.note_committed(*self._committed())
        except OSError as error:  # the commit is durable, and an old note is never wrong
            if not is_shortage(error):
                self.on_device_failure()
        return api.AppendOutcome(api.EntryOutcome.DONE, end)

    def _note(self, error: sqlite3.Error) -> None:
        """A failed read loses no page that was to be written."""
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF == sqlite3.SQLITE_IOERR and code not in _READ_ERRORS:
            self.on_device_failure()

    def _not_done(self, connection: sqlite3.Connection, error: sqlite3.Error) -> Exception:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return self._unavailable(error)

    def _unavailable(self, error: sqlite3.Error) -> MetadataUnavailable:
        self._note(error)
        is_full = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL
        return (MetadataFull if is_full else MetadataUnavailable)(f"{self._path}: {error}")

    def _number(self, query: str) -> int:
        row = self._open_connection().execute(query).fetchone()
        return int(row[0])

    def _row(self, query: str, parameters: tuple[object, ...]) -> tuple[Any, ...] | None:
        return self._fetch(self._placed_connection(), query, parameters)

    def _fetch(
        self, connection: sqlite3.Connection, query: str, parameters: tuple[object, ...]
    ) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = connection.execute(query, parameters).fetchone()
        except sqlite3.Error as error:
            raise self._reading_error(error) from error
        return row

    def _reading_error(self, error: sqlite3.Error) -> Exception:
        self._note(error)
        if isinstance(error, sqlite3.OperationalError):
            return MetadataUnavailable(f"{self._path}: {error}")
        return MetadataCorrupt(f"{self._path}: {error}")

    def _opening_error(self, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error):
            return MetadataUnavailable(f"{self._path}: {error}")
        return self._reading_error(error)


def _use_journal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead journal, also while another process switches the new file to it.

    SQLite's timeout does not cover two such processes: to prevent a deadlock it refuses one of them
    at once.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_BUSY_PAUSE_S)


def _entry_crc(index: int, epoch: int, writer_id: bytes, serial: int, payload: bytes) -> int:
    head = b"%d %d %d %s " % (index, epoch, serial, writer_id)
    return zlib.crc32(payload, zlib.crc32(head))


def _snapshot_crc(end: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(b"%d " % end))
