"""Commits that exchange data files of a table or remove old snapshots, and the lock of commits.

An exchange requires that all replaced files are still in the table, with the same delete files, so
no concurrent change is lost. Each attempt loads the table first, also after a failure: a commit
that raised an error may have succeeded. The summary of the commit's snapshot has an id by which a
later attempt finds it. Older snapshots still reference the replaced files. `upkeep/cleanup.py`
removes them after a grace period, by the list that `note_replaced` writes before the commit.

Iceberg's commits are optimistic: a commit fails if another came after its table was loaded. An
exchange reads all manifests in between. Beside a job that appends often, each of its attempts would
fail, and the files that are appended meanwhile make the next ones slower. So appends, exchanges and
expiries lock the table's folder from the load to the commit. The catalog alone keeps commits
correct. A writer continues without the lock if the folder is not on this host, cannot be locked, or
stays locked for long, as by a stopped process.

A commit copies the table's whole metadata, so its cost grows with the number of snapshots.
PyIceberg removes expired snapshots from the metadata but not their manifest files; this module
deletes them. It deletes no data files; `upkeep/cleanup.py` does. A snapshot with a tag or a branch
stays as long as these, and does not delay the expiry of other snapshots. The table's own policy
comes first: the properties `history.expire.*`, and the same settings of a branch, keep snapshots
longer than the defaults of this module (Iceberg spec, "Snapshot Retention Policy").
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote, urlsplit

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from lakelog.base.events import event
from lakelog.client.errors import pauses
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import NOT_COMMITTED, raise_if_unwritable
from lakelog.tables.iceberg.data_file import data_file
from lakelog.tables.iceberg.stored_files import remove_expired, remove_unreferenced
from lakelog.tables.iceberg.table import SNAPSHOTS_MAX, load_for_commit

_log = logging.getLogger("lakelog.tables")
_ATTEMPTS_MAX = 16
_POLL_S = 0.01
_WAIT_MAX_S = 10.0
_stuck: set[str] = set()
"""Folders that stayed locked: the next writer does not wait for them again."""


def attempts() -> Iterator[None]:
    """Return an iterator of the 16 attempts of a commit, which pauses before each but the first."""
    yield
    for pause_s in islice(pauses(), _ATTEMPTS_MAX - 1):
        time.sleep(pause_s)
        yield


@contextmanager
def locked_for_commit(address: TableAddress) -> Iterator[Table]:
    """Load the table; no other append, exchange or expiry of this host commits during the block.

    A block must not lock the same table again. Raises as `load_for_commit`.
    """
    path = _folder(tuple(sorted(address.catalog.items())), address.identifier, address.uuid)
    with nullcontext() if path is None else _locked(path):
        yield load_for_commit(address)


@lru_cache
def _folder(
    catalog: tuple[tuple[str, str], ...], identifier: tuple[str, str], table_uuid: str
) -> str | None:
    """Return the path of the table's folder; `None` if it is not on this host."""
    url = urlsplit(TableAddress(dict(catalog), identifier, table_uuid).load().location())
    return unquote(url.path) if url.scheme in {"", "file"} else None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the folder during the block, if that is possible soon."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        _wait_for_lock(fd, path)
        yield
    finally:
        # A process that was forked meanwhile keeps the folder open, and so the lock.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _wait_for_lock(fd: int, path: str) -> None:
    end_s = time.monotonic() + (0 if path in _stuck else _WAIT_MAX_S)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end_s:
                break
            time.sleep(_POLL_S)
        except OSError:  # a file system without locks, or without locks of folders
            return
        else:
            _stuck.discard(path)
            return
    if path not in _stuck:
        _stuck.add(path)
        _log.warning(
            "another process has locked %s for %g s: commits no longer wait for it",
            path,
            _WAIT_MAX_S,
            extra=event("table_lock_ignored", path=path),
        )


REPLACED = "lakelog-replaced-"
"""The name of a list of replaced files begins so."""
_ID = "lakelog.exchange"


class UnknownOutcomeError(Exception):
    """No answer to a commit: it may still succeed, so the new files stay."""


@contextmanager
def removing_new_files(address: TableAddress, made: Iterable[str]) -> Iterator[None]:
    """Remove the files of `made` after an error, unless a commit may still add them."""
    try:
        yield
    except UnknownOutcomeError:
        raise
    except BaseException:
        remove_unreferenced(address.load(), made)
        raise


def exchange(
    address: TableAddress,
    old: Sequence[FileScanTask],
    make: Callable[[Table], Iterable[DataFile]],
    entry: Callable[[Table], Mapping[str, str] | None],
) -> bool:
    """Replace the files of `old`; return false if the table has changed so that it must not.

    make: returns the new files, which are durable. entry: returns the properties that the commit
    sets in the table and in the summary, or `None` if the table has changed. Raises
    `UnknownOutcomeError`, `TableReplacedError`, the errors of `entry` and `raise_if_unwritable`,
    and after 16 attempts the last error of the catalog.
    """
    assert len({task.file.file_path for task in old}) == len(old), "a file is replaced once"
    mark, is_unknown = {_ID: uuid.uuid4().hex}, False
    for _ in attempts():
        with locked_for_commit(address) as table:
            if is_unknown and _has_committed(table, mark):
                return True
            live = {task.file.file_path: task for task in table.scan().plan_files()}
            # A delete file that was added since would be lost, and its rows would return.
            if any(_deletes(live.get(task.file.file_path)) != _deletes(task) for task in old):
                return False
            properties = entry(table)
            if properties is None:
                return False
            try:
                _replace(table, [live[task.file.file_path] for task in old], make, properties, mark)
            except Exception as error:  # noqa: BLE001 - the next attempt reads the outcome from the table
                # An earlier attempt may still succeed, so the new files must stay then.
                if not is_unknown:
                    raise_if_unwritable(error, address.catalog)
                is_unknown |= not isinstance(error, NOT_COMMITTED)
                last = error
            else:
                return True
    if is_unknown:
        raise UnknownOutcomeError(
            f"whether the catalog has committed new files is unknown ({type(last).__name__}: "
            f"{last}); no row is lost or twice, so try again when the catalog answers"
        ) from last
    raise last


def _replace(
    table: Table,
    old: Sequence[FileScanTask],
    make: Callable[[Table], Iterable[DataFile]],
    properties: Mapping[str, str],
    mark: Mapping[str, str],
) -> None:
    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties={**properties, **mark})
        with update.overwrite() as overwrite:
            for task in old:
                overwrite.delete_data_file(task.file)
            replaced = {task.file.file_path for task in old}
            for data_file in make(table):
                # The commit would remove it again, and its rows with it.
                assert data_file.file_path not in replaced, data_file.file_path
                overwrite.append_data_file(data_file)
        transaction.set_properties(dict(properties))


def note_replaced(table: Table, catalog: Mapping[str, str], paths: Sequence[str]) -> None:
    """Write the list of files that the next commit replaces, for their removal."""
    path = f"{table.location()}/metadata/{REPLACED}{uuid.uuid4().hex}.json"
    text = json.dumps({"replaced_ms": int(time.time() * 1000), "paths": list(paths)})
    with data_file(path, catalog).writing() as file:
        file.write(text.encode())


def _deletes(task: FileScanTask | None) -> list[str] | None:
    """Return the delete files of a data file; `None` if the file is not in the table."""
    return None if task is None else sorted(file.file_path for file in task.delete_files)


def _has_committed(table: Table, mark: Mapping[str, str]) -> bool:
    return any(
        snapshot.summary is not None
        and snapshot.summary.additional_properties.items() >= mark.items()
        for snapshot in table.metadata.snapshots
    )


_KEPT = SNAPSHOTS_MAX // 2
MAX_AGE, MIN_KEPT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which snapshots of the main branch stay, unless the table has a policy of its own.

    kept: at least so many of the newest. max_age_ms: older ones beyond these expire; with `None`
    only the number counts.
    """

    kept: int
    max_age_ms: int | None = None

    def of(self, table: Table) -> Policy:
        """Return this policy with the table's `history.expire.*` in its place."""
        own = table.properties
        kept = int(own[MIN_KEPT]) if MIN_KEPT in own else self.kept
        age = int(own[MAX_AGE]) if MAX_AGE in own else self.max_age_ms
        return Policy(max(1, kept), age)


def expire_snapshots(address: TableAddress) -> int:
    """Remove the oldest snapshots if there are too many; return how many were removed.

    Errors are logged, not raised: the batch is already committed, and the next one tries again. If
    the outcome of an expiry is unknown, no file is removed.
    """
    try:
        table = address.load()
        # Not before: an expiry after each commit would be a second commit each time.
        if len(_unnamed(table)) < SNAPSHOTS_MAX:
            return 0
        return expire_by(address, Policy(_KEPT), int(time.time() * 1000))
    except Exception as error:  # noqa: BLE001 - a concurrent commit, or a busy catalog or store
        _log.info(
            "expiry of old snapshots is delayed: %s",
            error,
            extra=event("snapshot_expiry_delayed"),
        )
        return 0


def expire_by(address: TableAddress, policy: Policy, now_ms: int) -> int:
    """Remove the snapshots that no policy keeps; return how many.

    now_ms: milliseconds since the epoch. Raises `TableReplacedError`, `OSError` and the errors of
    the catalog; no file is removed then.
    """
    with locked_for_commit(address) as table:
        expired = expirable(table, policy, now_ms)
        if not expired:
            return 0
        ids = [snapshot.snapshot_id for snapshot in expired]
        assert table.metadata.current_snapshot_id not in ids, "the current snapshot stays"
        # The metadata first: a crash in between leaves files without a reference, never a reference
        # without its file.
        table.maintenance.expire_snapshots().by_ids(ids).commit()
    # Loaded again: a concurrent commit may reuse a manifest of an expired snapshot.
    remove_expired(address.load(), expired)
    return len(expired)


def expirable(table: Table, policy: Policy, now_ms: int) -> list[Snapshot]:
    """Return the snapshots that neither the policy nor a tag or branch keeps, oldest first."""
    kept = {reference.snapshot_id for reference in table.metadata.refs.values()}
    own = policy.of(table)
    for name, reference in table.metadata.refs.items():
        if reference.snapshot_ref_type is SnapshotRefType.BRANCH and name != "main":
            kept |= _of_branch(table, reference, now_ms)
    newest = sorted(table.metadata.snapshots, key=lambda s: -s.timestamp_ms)
    main = [s for s in newest if s.snapshot_id not in kept or _is_head(table, s)]
    limit = None if own.max_age_ms is None else now_ms - own.max_age_ms
    for number, snapshot in enumerate(main):
        is_young = limit is not None and snapshot.timestamp_ms >= limit
        if number < own.kept or is_young:
            kept.add(snapshot.snapshot_id)
    expired = [s for s in table.metadata.snapshots if s.snapshot_id not in kept]
    heads = {reference.snapshot_id for reference in table.metadata.refs.values()}
    assert heads.isdisjoint(s.snapshot_id for s in expired), "a reference keeps its snapshot"
    return sorted(expired, key=lambda s: s.timestamp_ms)


def _is_head(table: Table, snapshot: Snapshot) -> bool:
    return bool(snapshot.snapshot_id == table.metadata.current_snapshot_id)


def _of_branch(table: Table, branch: SnapshotRef, now_ms: int) -> set[int]:
    """Return the snapshots that the settings of a branch keep: its head at least."""
    count = branch.min_snapshots_to_keep or 1
    limit = now_ms - branch.max_snapshot_age_ms if branch.max_snapshot_age_ms else None
    kept: set[int] = set()
    snapshot = table.metadata.snapshot_by_id(branch.snapshot_id)
    while snapshot is not None:
        assert snapshot.snapshot_id not in kept, "a snapshot is not its own ancestor"
        is_young = limit is not None and snapshot.timestamp_ms >= limit
        if len(kept) >= count and not is_young:
            break
        kept.add(snapshot.snapshot_id)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.metadata.snapshot_by_id(parent)
    return kept


def _unnamed(table: Table) -> list[Snapshot]:
    # Tags and branches keep their snapshots (Iceberg spec, "Snapshot Retention Policy").
    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    return [s for s in table.metadata.snapshots if s.snapshot_id not in named]
