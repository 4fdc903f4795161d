"""The table of dead letters: records that an archive's table cannot have, with their bytes.

It is beside the archive's table, in the same catalog, and has a progress of its own under the same
name. A batch commits its dead letters there first, then its rows. A crash between the two commits
leaves dead letters whose batch is committed later, perhaps with other ends. The dead letters below
the progress of this table are therefore not added again: all dead letters of these offsets are
there. Whether a record is a dead letter depends on its bytes alone, so it does not matter which job
has added it.

Dead letters at or above the end of the archive's table are of no batch yet. If the log loses these
records, `cut_dead_letters` removes them before other records get their offsets.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, Or
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table import Table

from lakelog.tables.archive.files import DEAD_LETTER_SCHEMA
from lakelog.tables.archive.history import ProgressMismatchError, agreed_progress, record
from lakelog.tables.archive.progress import Extent, Progress, archived_topic_ids
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import NOT_COMMITTED, raise_if_unwritable
from lakelog.tables.iceberg.commits import attempts, expire_snapshots, locked_for_commit
from lakelog.tables.iceberg.data_file import data_file, open_input
from lakelog.tables.iceberg.stored_files import remove_unreferenced
from lakelog.tables.iceberg.table import ensure_table

SUFFIX = "_dead_letters"
"""The name of the table is that of the archive's table with this suffix."""

_SCHEMA = pyarrow_to_schema(DEAD_LETTER_SCHEMA)


class DeadLettersError(Exception):
    """The table of dead letters is of another topic, or was rolled back."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The files of a batch's dead letters, and the table for them."""

    address: TableAddress
    paths: tuple[str, ...]


def dead_letters_of(archive: TableAddress, table_uuid: str = "") -> TableAddress:
    """Return the address of the dead letters of an archive's table."""
    namespace, name = archive.identifier
    return TableAddress(archive.catalog, (namespace, name + SUFFIX), table_uuid)


def open_dead_letters(archive: TableAddress, topic_id: str) -> Table:
    """Return the table of dead letters, created if it is missing.

    Raises `DeadLettersError` if it has dead letters of another topic, and as `ensure_table`.
    """
    table = ensure_table(dead_letters_of(archive), _SCHEMA)
    others = archived_topic_ids(table.properties) - {topic_id}
    if others:
        raise DeadLettersError(
            f"the table {'.'.join(table.name())} has dead letters of another topic (topic id "
            f"{', '.join(sorted(others))}): rename or drop it, or archive into a table of another "
            "name"
        )
    return table


def find_dead_letters(archive: TableAddress) -> Table | None:
    """Return the table of dead letters; `None` if no job has created it."""
    address = dead_letters_of(archive)
    if not address.exists():
        return None
    table = address.load()
    # Topics may have such names, too: then this is the archive of another topic.
    return table if has_dead_letters(table) else None


def has_dead_letters(table: Table) -> bool:
    """Return whether this is a table of dead letters."""
    return set(_SCHEMA.column_names) <= set(table.schema().column_names)


def commit_dead_letters(
    dead_letters: DeadLetters,
    topic_id: str,
    query_id: str,
    number: int,
    extents: Mapping[int, Extent],
) -> None:
    """Append the dead letters of a batch, without the dead letters that the table has already.

    extents: the offsets of the batch, of which the files have all dead letters. Raises
    `DeadLettersError`, `TableReplacedError`, and after 16 attempts the last error of the catalog.
    """
    address, is_unknown = dead_letters.address, False
    for _ in attempts():
        with locked_for_commit(
            address
        ) as table:  # its progress shows whether the last attempt succeeded
            before = dead_letters_progress(table, topic_id)
            if all(extent.end <= before.ends.get(p, -1) for p, extent in extents.items()):
                if not is_unknown:
                    remove_unreferenced(table, dead_letters.paths)
                return
            fresh = [
                _without_known(path, address.catalog, before.ends) for path in dead_letters.paths
            ]
            paths = [path for path in fresh if path is not None]
            after = Progress(_after(before, extents), query_id, number)
            try:
                with table.transaction() as transaction:
                    record(transaction, topic_id, after, paths)
            except Exception as error:  # noqa: BLE001 - the next attempt reads the outcome from the table
                raise_if_unwritable(error, address.catalog)
                # A commit has no effect if it was rejected or found the catalog locked. Any
                # other may still succeed later.
                if isinstance(error, CommitFailedException):
                    remove_unreferenced(address.load(), set(paths) - set(dead_letters.paths))
                is_unknown |= not isinstance(error, NOT_COMMITTED)
                last = error
                continue
        if not is_unknown and paths != list(dead_letters.paths):
            remove_unreferenced(address.load(), dead_letters.paths)
        expire_snapshots(address)
        return
    raise last


def dead_letters_progress(table: Table, topic_id: str) -> Progress:
    """Return the offsets whose dead letters the table has. Raises `DeadLettersError`."""
    try:
        return agreed_progress(table, topic_id)
    except ProgressMismatchError:
        name = ".".join(table.name())
        raise DeadLettersError(
            f"the table {name} was rolled back or changed by another program: make its newest "
            "snapshot the current one, or rename it; the job then creates a new one"
        ) from None


def dead_letter_ranges(table: Table, topic: str, partition: int) -> list[tuple[int, int]]:
    """Return the offsets of a partition's dead letters in order, as pairs of start and exclusive
    end."""
    columns = ("offset", "offsetLast")
    row_filter = And(EqualTo("topic", topic), EqualTo("partition", partition))
    rows = table.scan(row_filter=row_filter, selected_fields=columns).to_arrow()
    pairs = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
    return sorted((start, last + 1) for start, last in pairs)


def cut_dead_letters(table: Table, topic_id: str, cuts: Mapping[int, Extent]) -> None:
    """Remove the dead letters from the end of each extent on, and end the progress there.

    Raises the errors of the catalog.
    """
    progress = dead_letters_progress(table, topic_id)
    terms = [
        And(EqualTo("partition", partition), GreaterThanOrEqual("offset", extent.end))
        for partition, extent in cuts.items()
    ]
    after = Progress({**progress.extents, **cuts}, progress.query_id, progress.batch)
    with table.transaction() as transaction:
        transaction.delete(terms[0] if len(terms) == 1 else Or(*terms))
        record(transaction, topic_id, after)


def _after(before: Progress, extents: Mapping[int, Extent]) -> dict[int, Extent]:
    after = dict(before.extents)
    for partition, extent in extents.items():
        current = after.get(partition)
        if current is None or current.end < extent.end:
            start = extent.start if current is None else current.start
            after[partition] = Extent(start, extent.end, extent.leader_epoch)
    return after


def _without_known(path: str, catalog: Mapping[str, str], ends: Mapping[int, int]) -> str | None:
    """Return the path of a file without dead letters below `ends`; `None` if no dead letter is
    left."""
    with open_input(path, catalog) as source, pq.ParquetFile(source) as file:
        keys = file.read(["partition", "offset"]).to_pylist()
        below = [key["offset"] < ends.get(key["partition"], 0) for key in keys]
        if not any(below):
            return path
        made = path.removesuffix(".parquet") + f"-{uuid.uuid4().hex}.parquet"
        groups = (file.read_row_group(number) for number in range(file.num_row_groups))
        kept = [_above(group, ends) for group in groups]
    rows = pa.concat_tables(kept)
    if not rows.num_rows:
        return None
    with data_file(made, catalog).writing() as target:
        pq.write_table(rows, target, compression="zstd")
    return made


def _above(dead_letters: pa.Table, ends: Mapping[int, int]) -> pa.Table:
    """Return the dead letters from `ends` on. A damaged batch may have offsets on both sides."""
    rows: Iterable[dict[str, object]] = dead_letters.to_pylist()
    kept = []
    for row in rows:
        end, last = ends.get(_int(row["partition"]), 0), _int(row["offsetLast"])
        if last >= end:
            kept.append({**row, "offset": max(_int(row["offset"]), end)})
    return pa.Table.from_pylist(kept, DEAD_LETTER_SCHEMA)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
