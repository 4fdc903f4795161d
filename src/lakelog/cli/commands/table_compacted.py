"""`lakelog table refresh`, and the parts of other commands about the table of newest records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog.cli.declaration import Noun, argument, flag
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import stopping
from lakelog.cli.options import CommandSession, Output
from lakelog.cli.render import Document, Listing, note, show
from lakelog.cli.table_locations import TableChoice, opened_archive

if TYPE_CHECKING:
    from lakelog.tables.archive.location import TableLocation
    from lakelog.tables.compacted.audit import CompactedAudit
    from lakelog.tables.hybrid.archives import TopicArchive
    from lakelog.tables.iceberg.address import TableAddress
    from lakelog.tables.topic.client import TopicClient

app = Noun("table")
"""`table.py` has its commands."""


@app.command(
    argument("topic", help="Topic whose newest records to refresh."),
    flag(
        "--rebuild",
        help="Compute all rows again: after the table was rolled back or changed by another "
        "program, or after rows were deleted from the archive.",
    ),
    where=TableChoice,
    session=CommandSession,
    output=Output,
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
    listing = Listing(ends, ("partition", "refreshed_to"))
    show(Document({**facts, "partitions": ends}, facts, [listing]), output.format)
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
