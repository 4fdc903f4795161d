"""Offsets that the archive left out: the topic lost them before, or they cannot be rows.

Tasks discover them while a batch runs, and only a commit decides the outcome of a batch. Each
commit therefore records these offsets of its batch in the summary of its snapshot, as
`{"<partition>": [[start, end], ...]}`: lost offsets under one key, and the
first offsets that cannot be rows (`refusals.py`) under another.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import dropwhile, takewhile
from typing import NamedTuple

from pyiceberg.table import Table

from lakelog.tables.archive.history import ancestors
from lakelog.tables.archive.progress import Extent, Progress

NAME = "lakelog.skipped"
"""The key in a snapshot's summary, for offsets that the topic lost."""
REFUSED = "lakelog.refused"
"""The key for offsets that cannot be rows."""


class Skipped(NamedTuple):
    """Offsets of one partition from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int


def merge(found: Iterable[Skipped]) -> list[Skipped]:
    """Return the pieces in order, with adjacent ones joined."""
    merged: list[Skipped] = []
    for piece in sorted(found):
        last = merged[-1] if merged else None
        if last is not None and (last.partition, last.end) == (piece.partition, piece.start):
            merged[-1] = Skipped(last.partition, last.start, piece.end)
        else:
            merged.append(piece)
    return merged


def before_extents(known: Progress, extents: Mapping[int, Extent]) -> list[Skipped]:
    """Return the removed first offsets of partitions that were added after the first commit."""
    if not known.extents:
        return []
    added = {p: extent for p, extent in extents.items() if p not in known.extents}
    return [Skipped(p, 0, extent.start) for p, extent in added.items() if extent.start > 0]


def summary_entry(found: Iterable[Skipped], name: str = NAME) -> dict[str, str]:
    """Return the entry of a snapshot's summary; it is empty if no offset was skipped."""
    entries: dict[str, list[tuple[int, int]]] = {}
    for partition, start, end in merge(found):
        entries.setdefault(str(partition), []).append((start, end))
    return {name: json.dumps(entries)} if entries else {}


def skipped_between(
    table: Table, before: int | None, newest: int | None, name: str = NAME
) -> list[Skipped]:
    """Return the offsets skipped by the snapshots after `before` up to and including `newest`.

    name: the key in their summaries. before, newest: snapshot ids; `None` stands for a table
    without snapshots. The chain ends where snapshots have expired, so their skips may be missing.
    """
    found: list[Skipped] = []
    later = dropwhile(lambda snapshot: snapshot.snapshot_id != newest, ancestors(table))
    for snapshot in takewhile(lambda snapshot: snapshot.snapshot_id != before, later):
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        entries = json.loads(summary.get(name, "{}"))
        found += [Skipped(int(p), *piece) for p, pieces in entries.items() for piece in pieces]
    return merge(found)
