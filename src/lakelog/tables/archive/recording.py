"""Adds the progress of a topic to a transaction of its table."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table import Transaction

from lakelog.tables.archive.progress import Progress, property_name
from lakelog.tables.archive.refusals import RefusedRange
from lakelog.tables.archive.skipped import REFUSED, Skipped, summary_entry


def record(
    transaction: Transaction,
    topic_id: str,
    progress: Progress,
    paths: Iterable[str] = (),
    skipped: Iterable[Skipped] = (),
    refused: Iterable[RefusedRange] = (),
) -> None:
    """Add files and progress to a transaction, so that property and summary change together.

    The summary rolls back with the snapshot, the property does not; see `history`.
    """
    entry = {property_name(topic_id): progress.to_text()}
    summary = {**entry, **summary_entry(skipped)}
    summary |= summary_entry((Skipped(*each) for each in refused), REFUSED)
    # The check for duplicates reads all manifests. Progress excludes them: each range is appended
    # once.
    transaction.add_files(list(paths), snapshot_properties=summary, check_duplicate_files=False)
    transaction.set_properties(entry)
