"""`lakelog table describe`, `audit`, `compact`, `expire` and `refresh`, which need no Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import stopping
from lakelog.cli.options import CommandSession, Output
from lakelog.cli.positions import parse_duration_s
from lakelog.cli.render import Document, Listing, counted, note, show, sized
from lakelog.cli.table_locations import TableChoice, opened_archive

if TYPE_CHECKING:
    from lakelog.tables.archive.location import TableLocation
    from lakelog.tables.compacted.audit import CompactedAudit
    from lakelog.tables.hybrid.archives import TopicArchive
    from lakelog.tables.iceberg.address import TableAddress
    from lakelog.tables.topic.client import TopicClient
    from lakelog.tables.upkeep.audit import PartitionAudit
    from lakelog.tables.upkeep.ownership import Overview

_AUDITED = (
    "partition",
    "archived_from",
    "archived_to",
    "rows",
    "compared",
    "unverified",
    "dead_letters",
    "skipped_records",
    "wrong",
)

app = Noun("table")
"""`table.py` has its commands."""


@app.command(topic="Topic whose table to show.")
def describe(topic: str, *, where: TableChoice, session: CommandSession, output: Output) -> None:
    """Show a topic's table: its size, and how far each partition is archived.

    Of a table of newest records: its size, and the archived offsets that it does not have.
    """
    with opened_archive(session, topic, where) as (client, archive):
        from lakelog.tables.upkeep.ownership import overview

        summary = overview(client, archive)
        show(described(archive, summary, compacted_facts(client, archive)), output.format)


@app.command(topic="Topic whose table to check.")
def audit(topic: str, *, where: TableChoice, session: CommandSession, output: Output) -> None:
    """Prove that a topic's table has each archived record exactly once.

    Reads the offsets of all rows, and of all records that the log still has. Each offset must be in
    the table once, inside the archived range, and in the table if and only if it is in the log.
    Offsets without a row that the log no longer has are counted as unverified: control records,
    aborted records or compacted ones. Records that cannot be rows must be dead letters, or counted
    as skipped.

    The newest record of each key is computed again from the archive, and compared with the table of
    newest records, if there is one.
    """
    with opened_archive(session, topic, where) as (client, archive):
        from lakelog.tables.upkeep.audit import audit as audited

        report = audited(client, archive)
        compacted = audited_compacted(client, archive)
    rows = [_audit_row(partition) for partition in report.partitions]
    facts = {
        "topic": topic,
        "snapshot_id": archive.table.metadata.current_snapshot_id,
        "rows": report.rows,
        "total_records": report.total_records,
        "sound": report.is_sound,
        **(compacted_findings(compacted) if compacted else {}),
    }
    show(Document({**facts, "partitions": rows}, facts, [Listing(rows, _AUDITED)]), output.format)
    if not report.is_sound:
        wrong = "; ".join(_offences(topic, row) for row in report.partitions if not row.is_sound)
        counts = f"{report.rows} rows are not the {report.total_records} of the snapshot's summary"
        raise CliError("LL0806", wrong or counts)
    if compacted and not compacted.is_sound:
        raise CliError("LL0806", f"of the newest records: {'; '.join(compacted.first)}")


@app.command(
    topic="Topic whose table to compact.",
    target="Size of new files in MiB (default 256).",
    min_files="Compact only if there are so many small files (default 8).",
)
def compact(
    topic: str,
    *,
    target: int = 256,
    min_files: int = 8,
    where: TableChoice,
    session: CommandSession,
    output: Output,
) -> None:
    """Replace small files of a topic's table by large ones.

    Rows are ordered by partition and offset, and the progress stays. Replaced files stay for older
    snapshots; `lakelog table expire` removes them after a grace period. A table of newest records
    needs no compaction: each refresh leaves one file for each bucket.
    """
    if target < 1 or min_files < 2:
        raise CliError("LL0902", "--target must be at least 1, and --min-files at least 2")
    with opened_archive(session, topic, where) as (_, archive):
        from lakelog.tables.upkeep.compaction import compact as compacted

        done = compacted(
            archive.address,
            topic,
            archive.topic_id,
            target_bytes=target << 20,
            files_min=min_files,
        )
    data = {
        "topic": topic,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "bytes_before": done.bytes_before,
        "bytes_after": done.bytes_after,
        "rows": done.rows,
    }
    show(Document(data, data), output.format)


@app.command(
    topic="Topic whose table to clean up.",
    keep="Newest snapshots to keep (default 50).",
    older_than="Expire only snapshots older than this, such as 7d.",
    grace="Time for which files stay that a compaction replaced (default 1d).",
    orphan_age="Age at which files without a reference are removed, at least 1h (default 3d).",
)
def expire(
    topic: str,
    *,
    keep: int = 50,
    older_than: str | None = None,
    grace: str = "1d",
    orphan_age: str = "3d",
    where: TableChoice,
    session: CommandSession,
    output: Output,
) -> None:
    """Expire old snapshots of a topic's table, and remove unused files.

    Snapshots with a tag or a branch stay. The table's properties `history.expire.*` take precedence
    over --keep and --older-than. Of a table of newest records at most the newest 3 snapshots, and
    all of the last hour, stay, and replaced files stay for an hour.
    """
    age_s = None if older_than is None else parse_duration_s(older_than)
    grace_s, orphan_s = parse_duration_s(grace), parse_duration_s(orphan_age)
    if keep < 1 or orphan_s < 3600:
        raise CliError("LL0902", "--keep must be at least 1, and --orphan-age at least 1h")
    with opened_archive(session, topic, where) as (client, archive):
        from lakelog.tables.compacted.table import own_compacted
        from lakelog.tables.iceberg.commits import Policy
        from lakelog.tables.upkeep.cleanup import clean_all

        policy = Policy(keep, None if age_s is None else int(age_s * 1000))
        done = clean_all(
            archive.address,
            policy,
            time.time(),
            grace_s=grace_s,
            orphan_age_s=orphan_s,
            compacted=own_compacted(client, archive),
        )
    data = {
        "topic": topic,
        "snapshots_expired": done.snapshots,
        "files_removed": done.files,
        "bytes_removed": done.bytes,
    }
    show(Document(data, data), output.format)


def described(archive: TopicArchive, summary: Overview, compacted: dict[str, Any]) -> Document:
    """Return a table as data; tables show sizes with units. compacted: as `compacted_facts`."""
    rows = [
        {
            "partition": partition.partition,
            "archived_from": partition.start,
            "archived_to": partition.end,
            "log_start": partition.log_start,
            "log_end": partition.log_end,
            "lag": partition.lag,
        }
        for partition in summary.partitions
    ]
    facts: dict[str, Any] = {
        "topic": archive.topic,
        "table": ".".join(archive.address.identifier),
        "location": archive.table.location(),
        "partition_by": summary.partition_by,
        "snapshot_id": archive.table.metadata.current_snapshot_id,
        "rows": summary.rows,
        "files": summary.files,
        "small_files": summary.small_files,
        "bytes": summary.size,
        "snapshots": summary.snapshots,
        "lag": sum(partition.lag for partition in summary.partitions),
        "dead_letters": archive.dead_letters,
        "skipped_records": archive.skipped_records,
        "offsets_only_in_table": sum(partition.only_in_table for partition in summary.partitions),
        **compacted,
    }
    shown = {**facts, "bytes": sized(summary.size), "partition_by": summary.partition_by or None}
    return Document({**facts, "partitions": rows}, shown, [Listing(rows)])


def _audit_row(partition: PartitionAudit) -> dict[str, Any]:
    kinds = {
        "duplicates": partition.duplicates,
        "outside": partition.outside,
        "missing": partition.missing,
        "extra": partition.extra,
        "doubled": partition.doubled,
    }
    return {
        "partition": partition.partition,
        "archived_from": partition.start,
        "archived_to": partition.end,
        "rows": partition.rows,
        "compared": partition.compared,
        "unverified": partition.unverified,
        "skipped": partition.skipped,
        "dead_letters": partition.refused.dead_letters,
        "skipped_records": partition.refused.skipped,
        "lost_letters": partition.lost_dead_letters,
        "wrong": partition.wrong,
        **{name: kind.first for name, kind in kinds.items()},
    }


def _offences(topic: str, partition: PartitionAudit) -> str:
    named = {
        "twice in the table": partition.duplicates,
        "outside of the archived range": partition.outside,
        "missing in the table": partition.missing,
        "not in the log": partition.extra,
        "both rows and dead letters": partition.doubled,
    }
    parts = [
        f"{counted(kind.count, 'offset')} {text} (first {', '.join(map(str, kind.first))})"
        for text, kind in named.items()
        if kind.count
    ]
    if partition.lost_dead_letters:
        parts.append(
            f"{counted(partition.lost_dead_letters, 'dead letter')} missing in their table"
        )
    return f"{topic}-{partition.partition}: {', '.join(parts)}"


@app.command(
    topic="Topic whose newest records to refresh.",
    rebuild=Argument(
        "Compute all rows again: after the table was rolled back or changed by another "
        "program, or after rows were deleted from the archive."
    ),
)
def refresh(
    topic: str,
    *,
    rebuild: bool = False,
    where: TableChoice,
    session: CommandSession,
    output: Output,
) -> None:
    """Bring a topic's table of newest records to the end of its archive.

    The topic's key `table.latest` must be set. `lakelog table sync` does this after its commits,
    too.
    """
    with opened_archive(session, topic, where) as (client, archive):
        from lakelog.tables.compacted.refresh import Refresh
        from lakelog.tables.compacted.table import find_compacted

        compacted = find_compacted(client, topic, archive.address)
        if compacted is None:
            raise CliError(
                "LL0804",
                f"topic {topic!r} has no table of newest records",
                f"lakelog topic alter {topic} --config table.latest=true",
            )
        with stopping() as stop:
            job = Refresh(compacted, lambda line: note(line, quiet=session.quiet), stop)
            done = job.run(archive, rebuild=bool(rebuild))
    facts = {
        "topic": topic,
        "table": ".".join(compacted.address.identifier),
        "records_read": done.rows,
        "buckets_rewritten": done.buckets,
        "commits": done.commits,
    }
    ends = [{"partition": p, "refreshed_to": end} for p, end in sorted(done.ends.items())]
    show(Document({**facts, "partitions": ends}, facts, [Listing(ends)]), output.format)
    if stop.is_set():
        raise CliError("LL0604", "interrupted: some archived records are not in the table yet")


def compacted_facts(client: TopicClient, archive: TopicArchive) -> dict[str, Any]:
    """Return the numbers of the table of newest records; none if the topic has no such table."""
    from lakelog.tables.compacted.audit import compacted_overview
    from lakelog.tables.compacted.table import own_compacted

    address = own_compacted(client, archive)
    if address is None:
        return {}
    overview = compacted_overview(archive, address.load())
    return {
        "latest_table": ".".join(address.identifier),
        "latest_rows": overview.rows,
        "latest_files": overview.files,
        "latest_bytes": overview.size,
        "latest_buckets": overview.buckets,
        "latest_lag": overview.lag,
        "latest_null_keys": overview.null_keys,
    }


def audited_compacted(client: TopicClient, archive: TopicArchive) -> CompactedAudit | None:
    """Compare the table of newest records with the archive; return `None` without such a table."""
    from lakelog.tables.compacted.audit import audit_compacted
    from lakelog.tables.compacted.table import own_compacted

    address = own_compacted(client, archive)
    return None if address is None else audit_compacted(archive, address.load())


def compacted_findings(audit: CompactedAudit) -> dict[str, Any]:
    """Return the findings of an audit as data."""
    return {
        "latest_rows": audit.rows,
        "latest_keys": audit.keys,
        "latest_shared_keys": audit.shared_keys,
        "latest_null_keys": audit.null_keys,
        "latest_wrong": audit.wrong,
        "latest_sound": audit.is_sound,
    }


def compacted_to_drop(client: TopicClient, archive_table: TableLocation) -> TableAddress | None:
    """Return the table of newest records that a drop of the topic's table drops, too.

    A failed drop may have left files of it, which the next one deletes.
    """
    from lakelog.tables.compacted.table import find_compacted, find_table, is_compacted_of
    from lakelog.tables.upkeep.ownership import is_unfinished

    topic_id = client.describe([archive_table.topic])[archive_table.topic].topic_id
    compacted = find_compacted(
        client, archive_table.topic, archive_table.address, also_disabled=True
    )
    if compacted is None:
        return None
    table = find_table(compacted.address)
    if table is None:
        return compacted.address if is_unfinished(compacted.address) else None
    return compacted.address if is_compacted_of(table, topic_id) else None
