"""Expires snapshots by the table's policy, and removes files that no snapshot references.

Which files are removed, and when:

- data files that a compaction replaced: after the grace period, counted from the compaction;
- other data files and manifests without a reference (of killed tasks, and of commits whose outcome
  was unknown): when they are older than the orphan age, which exceeds the time of any commit.

A file that any kept snapshot references always stays, also for tags and branches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.table import Table

from lakelog.tables.archive.dead_letters import dead_letters_of, find_dead_letters
from lakelog.tables.compacted.refresh import GRACE_S as COMPACTED_GRACE_S
from lakelog.tables.compacted.refresh import KEPT
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.commits import REPLACED, Policy, expire_by
from lakelog.tables.iceberg.stored_files import StoredFile, place_of, referenced_files, stored_files

GRACE_S = 86_400.0
ORPHAN_AGE_S = 3 * 86_400.0
ORPHAN_AGE_MIN_S = 3_600.0
"""A younger file may belong to a task that has not committed yet."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The numbers of expired snapshots, of removed files, and of their bytes."""

    snapshots: int
    files: int
    bytes: int

    def __add__(self, other: Cleaned) -> Cleaned:
        return Cleaned(
            self.snapshots + other.snapshots, self.files + other.files, self.bytes + other.bytes
        )


def clean(
    address: TableAddress,
    policy: Policy,
    now_s: float,
    *,
    grace_s: float = GRACE_S,
    orphan_age_s: float = ORPHAN_AGE_S,
) -> Cleaned:
    """Expire snapshots, then remove files; return the counts.

    now_s: seconds since the epoch. Raises `TableReplacedError`, `OSError`, `ValueError` for a store
    whose files cannot be listed, and the errors of the catalog; no file is removed if the expiry
    fails or a kept snapshot cannot be read.
    """
    assert orphan_age_s >= ORPHAN_AGE_MIN_S, "younger files may belong to a running commit"
    expired = expire_by(address, policy, int(now_s * 1000))
    table = address.load()
    # Listed before the references are read: a file that is committed in between is referenced.
    stored = [
        *stored_files(table.io, f"{table.location()}/data"),
        *stored_files(table.io, f"{table.location()}/metadata"),
    ]
    table = address.load()
    referenced = {place_of(path) for path in referenced_files(table)}
    waiting, due, lists = _replaced(table, stored, now_s - grace_s, referenced)
    removed = [
        file
        for file in stored
        if (location := place_of(file.path)) not in referenced
        and location not in waiting
        and (location in due or (_may_be_orphan(file) and file.modified_s < now_s - orphan_age_s))
    ]
    for path in (*(file.path for file in removed), *lists):
        with suppress(FileNotFoundError):
            table.io.delete(path)
    return Cleaned(expired, len(removed), sum(file.size for file in removed))


def clean_all(
    address: TableAddress,
    policy: Policy,
    now_s: float,
    *,
    grace_s: float = GRACE_S,
    orphan_age_s: float = ORPHAN_AGE_S,
    compacted: TableAddress | None = None,
) -> Cleaned:
    """Clean an archive's table and those beside it; return the sums. Arguments as of `clean`.

    compacted: the table of newest records. Each refresh rewrites files of it, so at most `KEPT`
    snapshots and the files of `GRACE_S` of `compacted/refresh.py` stay there.
    """
    done = clean(address, policy, now_s, grace_s=grace_s, orphan_age_s=orphan_age_s)
    if find_dead_letters(address) is not None:
        dead_letters = dead_letters_of(address)
        done += clean(dead_letters, policy, now_s, grace_s=grace_s, orphan_age_s=orphan_age_s)
    if compacted is not None:
        ages = [age for age in (policy.max_age_ms, KEPT.max_age_ms) if age is not None]
        few = Policy(min(policy.kept, KEPT.kept), min(ages))
        grace = min(grace_s, COMPACTED_GRACE_S)
        done += clean(compacted, few, now_s, grace_s=grace, orphan_age_s=orphan_age_s)
    return done


def _may_be_orphan(file: StoredFile) -> bool:
    """Return whether a file is of a kind that only snapshots reference.

    Metadata files (`.json`) are removed by PyIceberg itself.
    """
    return file.path.endswith((".parquet", ".avro"))


def _replaced(
    table: Table, stored: Iterable[StoredFile], before_s: float, referenced: set[str]
) -> tuple[set[str], set[str], list[str]]:
    """Return the places of replaced files that must stay and that may go, and finished lists.

    A list is finished when no file of it is referenced and its grace period is over.
    """
    waiting: set[str] = set()
    due: set[str] = set()
    done: list[str] = []
    for stored_file in stored:
        if not stored_file.path.rsplit("/", 1)[-1].startswith(REPLACED):
            continue
        with table.io.new_input(stored_file.path).open() as file:
            content = file.read()
        try:
            value = json.loads(content)
        except ValueError:
            # A crash cut the list off, before the commit that would have replaced the files.
            done += [stored_file.path] if stored_file.modified_s < before_s else []
            continue
        paths = set(map(place_of, value["paths"]))
        if value["replaced_ms"] / 1000 > before_s:
            waiting |= paths
        else:
            due |= paths
            done += [] if paths & referenced else [stored_file.path]
    return waiting, due, done
