"""Exchanges data files of a table for others in one commit.

The commit requires that all replaced files are still in the table, with the same delete files, so
no concurrent change is lost. Each attempt loads the table first, also after a failure: a commit
that raised an error may have succeeded. The summary of the commit's snapshot has an id by which a
later attempt finds it.

Older snapshots still reference the replaced files. `upkeep/cleanup.py` removes them after a grace
period, by the list that `note_replaced` writes before the commit.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import NOT_COMMITTED, raise_if_unwritable
from lakelog.tables.iceberg.commit_lock import attempts, locked_for_commit
from lakelog.tables.iceberg.data_file import data_file

REPLACED = "lakelog-replaced-"
"""The name of a list of replaced files begins so."""
_ID = "lakelog.exchange"


class UnknownOutcomeError(Exception):
    """No answer to a commit: it may still succeed, so the new files stay."""


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
