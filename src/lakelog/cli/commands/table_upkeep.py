"""The commands of `lakelog table` that need no Spark: places, proof, compaction, expiry."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lakelog.cli.commands.table_compacted import (
    audited_compacted,
    compacted_facts,
    compacted_findings,
    compacted_to_drop,
)
from lakelog.cli.declaration import Noun, argument, flag
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import confirm
from lakelog.cli.options import CommandSession, Consent, Output, open_admin
from lakelog.cli.positions import parse_duration_s
from lakelog.cli.render import Document, Listing, counted, show, sized
from lakelog.cli.table_locations import (
    ANY_TABLE,
    TableChoice,
    WarehouseChoice,
    at,
    chosen_locations,
    find_table,
    find_tables,
    missing_table,
    named_errors,
    opened_archive,
    repeatable,
    require_libraries,
)

if TYPE_CHECKING:
    from lakelog.tables.archive.location import TableLocation
    from lakelog.tables.hybrid.archives import TopicArchive
    from lakelog.tables.topic.client import TopicClient, TopicMeta
    from lakelog.tables.upkeep.audit import PartitionAudit
    from lakelog.tables.upkeep.ownership import Overview

_LISTED = ("topic", "table", "latest", "enabled", "warehouse", "archived", "lag")
_OFFSETS = ("partition", "archived_from", "archived_to", "log_start", "log_end", "lag")
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


@app.command(
    argument("topic", help="Topic to archive."),
    argument(
        "--warehouse",
        help="Folder or URI of the tables: file:, s3:, gs:, abfs:, hdfs: (default: `warehouse` "
        "in the broker's data folder).",
    ),
    argument(
        "--catalog",
        help="Local folder of the catalog (default: the warehouse; for a remote warehouse "
        "`warehouse` in the broker's data folder).",
    ),
    argument("--name", help="Name of the table (default: the topic's)."),
    argument(
        "--partition-by",
        help="Partitions of a new table, such as `day(timestamp)` or "
        "`partition,hour(timestamp)` (default: the topic's key `table.partition_by`).",
    ),
    flag(
        "--latest",
        help="Keep a second table with the newest record of each key (the topic's key "
        "`table.latest`).",
    ),
    session=CommandSession,
    output=Output,
)
def create(
    topic: str,
    *,
    warehouse: str | None = None,
    catalog: str | None = None,
    name: str | None = None,
    partition_by: str | None = None,
    latest: bool = False,
    session: CommandSession,
    output: Output,
) -> None:
    """Create the Iceberg table of a topic, and enable its archive.

    From then on retention keeps the topic's records until they are archived: run `lakelog table
    sync --enabled`, or `lakelog table sync TOPIC --follow`. An existing table with equal columns is
    used.
    """
    require_libraries()
    where, folder = chosen_locations(session, warehouse, catalog)
    from lakelog.tables.iceberg.warehouse import open_warehouse
    from lakelog.tables.topic.client import TopicClient
    from lakelog.tables.upkeep import ownership

    with (
        named_errors(),
        open_admin(session) as admin,
        TopicClient(session.brokers, client_id="lakelog", timeout_s=session.timeout_s) as client,
    ):
        admin.topics.describe(topic)
        opened = open_warehouse(where, folder)
        address = ownership.create(
            admin, client, topic, opened, name or topic, partition_by, compacted=bool(latest)
        )
    table = ".".join(address.identifier)
    data = {"topic": topic, "table": table, "uuid": address.uuid, "warehouse": where}
    show(Document(data, data), output.format)


@app.command(name="list", where=WarehouseChoice, session=CommandSession, output=Output)
def list_(*, where: WarehouseChoice, session: CommandSession, output: Output) -> None:
    """List the topics that have a table.

    Offsets of a table whose catalog is on another host are unknown, unless its archive is enabled.
    """
    require_libraries()
    from lakelog.tables.topic.client import TopicClient

    with (
        named_errors(),
        TopicClient(session.brokers, client_id="lakelog", timeout_s=session.timeout_s) as client,
    ):
        topics = client.topics()
        places = find_tables(session, client, topics, where)
        rows = [_listed(client, topics[topic], table) for topic, table in sorted(places.items())]
    show(Listing(rows, _LISTED, empty="No topic has a table."), output.format)


def _listed(client: TopicClient, topic: TopicMeta, table: TableLocation) -> dict[str, Any]:
    """Return the row of a topic with a table."""
    from lakelog.tables.compacted.table import find_compacted

    compacted = find_compacted(client, topic.name, table.address)
    is_known = table.is_enabled or bool(table.published)
    return {
        "topic": topic.name,
        "table": f"lakelog.{table.name}",
        "latest": ".".join(compacted.address.identifier) if compacted else None,
        "enabled": table.is_enabled,
        "warehouse": table.warehouse,
        "catalog": table.catalog or table.warehouse,
        "archived": sum(table.published.values()) if is_known else None,
        "lag": _lag(client, topic, table) if is_known else None,
    }


def _lag(client: TopicClient, topic: TopicMeta, table: TableLocation) -> int:
    """Return the number of offsets in the log that are not archived."""
    keys = [(topic.name, partition) for partition in topic.partitions]
    starts, ends = client.earliest(keys), client.latest(keys)
    archived = table.published
    return sum(max(0, ends[key] - max(archived.get(key[1], 0), starts[key])) for key in keys)


@app.command(
    argument("topic", help="Topic whose table to show."),
    where=TableChoice,
    session=CommandSession,
    output=Output,
)
def describe(topic: str, *, where: TableChoice, session: CommandSession, output: Output) -> None:
    """Show a topic's table: its size, and how far each partition is archived.

    Of a table of newest records: its size, and the archived offsets that it does not have.
    """
    with opened_archive(session, topic, where) as (client, archive):
        from lakelog.tables.upkeep.ownership import overview

        summary = overview(client, archive)
        show(described(archive, summary, compacted_facts(client, archive)), output.format)


@app.command(
    argument("topic", help="Topic whose table to check."),
    where=TableChoice,
    session=CommandSession,
    output=Output,
)
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
    argument("topic", help="Topic whose table to compact."),
    argument("--target", type=int, help="Size of new files in MiB (default 256)."),
    argument(
        "--min-files", type=int, help="Compact only if there are so many small files (default 8)."
    ),
    where=TableChoice,
    session=CommandSession,
    output=Output,
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
    argument("topic", help="Topic whose table to clean up."),
    argument("--keep", type=int, help="Newest snapshots to keep (default 50)."),
    argument("--older-than", help="Expire only snapshots older than this, such as 7d."),
    argument("--grace", help="Time for which files stay that a compaction replaced (default 1d)."),
    argument(
        "--orphan-age",
        help="Age at which files without a reference are removed, at least 1h (default 3d).",
    ),
    where=TableChoice,
    session=CommandSession,
    output=Output,
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


@app.command(
    argument("topic", help="Topic whose table to drop."),
    flag("--purge", help="Delete the files of the table, too."),
    where=TableChoice,
    session=CommandSession,
    consent=Consent,
    output=Output,
)
def drop(
    topic: str,
    *,
    purge: bool = False,
    where: TableChoice,
    session: CommandSession,
    consent: Consent,
    output: Output,
) -> None:
    """Drop a topic's table and disable its archive.

    The tables of dead letters and of newest records are dropped, too.
    Records that retention removed from the log are only in the table. Its files stay unless --purge
    is given; a later table of this name gets another folder. If the command fails, run it
    again to complete it.
    """
    require_libraries()
    from lakelog.tables.archive.location import find_locations
    from lakelog.tables.topic.client import TopicClient
    from lakelog.tables.upkeep import ownership
    from lakelog.tables.upkeep.ownership import is_unfinished

    with (
        named_errors(),
        open_admin(session) as admin,
        TopicClient(session.brokers, client_id="lakelog") as client,
    ):
        named = find_locations(client, client.describe([topic]), also_disabled=True).get(topic)
        # The keys also name a table whose drop has failed.
        table = named if where == ANY_TABLE and named else find_table(session, client, topic, where)
        if table is None:
            raise missing_table(topic, where)
        ownership.check_droppable(client, topic, table)
        is_named = named is not None and named.address == table.address
        if not (is_named or table.address.exists() or is_unfinished(table.address)):
            raise missing_table(topic, where)
        keys = [(topic, partition) for partition in table.published]
        starts = client.earliest(keys)
        only = sum(min(starts[key], table.published[key[1]]) for key in keys)
        what = f"the table lakelog.{table.name} of '{topic}'"
        kept = "" if purge else ", keeping its files"
        lost = f"; up to {counted(only, 'offset')} of it are no longer in the log" if only else ""
        confirm(f"drop {what}{kept}{lost}", yes=consent.yes)
        compacted = compacted_to_drop(client, table)
        words = where.words if is_named else at(table).words
        with repeatable(f"lakelog table drop {topic}{words}{' --purge' if purge else ''}"):
            files = ownership.drop(
                admin, topic, table.address, purge=purge, compacted=compacted, is_named=is_named
            )
    data = {"topic": topic, "table": f"lakelog.{table.name}", "files_deleted": files}
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
    return Document({**facts, "partitions": rows}, shown, [Listing(rows, _OFFSETS)])


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
