"""`lakelog table`: archives topics into Iceberg tables; creates, lists and drops tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lakelog.cli.commands import table_upkeep
from lakelog.cli.commands.table_upkeep import compacted_to_drop
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import confirm, stopping
from lakelog.cli.options import CommandSession, Consent, Output, open_admin
from lakelog.cli.positions import parse_duration_s
from lakelog.cli.render import Document, Listing, counted, note, show
from lakelog.cli.table_locations import (
    ANY_TABLE,
    TableChoice,
    TableTarget,
    WarehouseChoice,
    at,
    chosen_locations,
    find_table,
    find_tables,
    missing_table,
    named_errors,
    repeatable,
    require_libraries,
)

if TYPE_CHECKING:
    from lakelog.tables.archive.location import TableLocation
    from lakelog.tables.archive.refusals import OnBadRecord
    from lakelog.tables.topic.client import TopicClient, TopicMeta

app = Noun("table")

_LISTED = ("topic", "table", "latest", "enabled", "warehouse", "archived", "lag")


@app.command(
    topic="Topic to archive.",
    enabled=Argument(
        "Archive all topics with `table.enable=true` until ^C, and compact and clean up "
        "their tables. One job serves all topics, also topics that are enabled later."
    ),
    follow="Continue with new records until ^C.",
    every="Time between commits with --follow or --enabled (default 60s).",
    skip_lost=Argument(
        "Continue even if records were lost. Rows of records that the topic lost after "
        "they were archived are moved out of the table; a tag keeps them."
    ),
    null_timestamps=Argument(
        "Archive timestamps outside the years 1 to 9999 as null, with their number in "
        "`rawTimestamp`."
    ),
    errors=Argument(
        "How to treat records that cannot be rows of the table: stop, archive them in the "
        "table `NAME_dead_letters`, or leave them out (default: the topic's key "
        "`table.errors`)."
    ),
    adopt=Argument(
        "Where to continue after the table was rolled back: at the end of its current "
        "snapshot, or at the end that its property records. `rows`: after the rows of a table "
        "that another program has filled."
    ),
    master="Spark master (default local[2]).",
    shared_warehouse="The warehouse folder is mounted on all hosts of the Spark master.",
)
def sync(
    topic: str | None = None,
    *,
    enabled: bool = False,
    follow: bool = False,
    every: str = "60s",
    skip_lost: bool = False,
    null_timestamps: bool = False,
    errors: Literal["stop", "dead-letter", "skip"] | None = None,
    adopt: Literal["snapshot", "property", "rows"] | None = None,
    master: str = "local[2]",
    shared_warehouse: bool = False,
    where: TableTarget,
    session: CommandSession,
    output: Output,
) -> None:
    """Archive a topic into an Iceberg table, up to its current end.

    The table gets every record exactly once, even if the command is repeated or interrupted.
    """
    require_libraries()
    _check_target(topic, enabled=enabled, is_for_one=bool(follow or where.name or adopt))
    options: dict[str, Any] = {
        "every_s": parse_duration_s(every),  # before `chosen_locations`, which may ask the broker
        "skip_lost": skip_lost,
        "null_timestamps": null_timestamps,
        "errors": _errors(errors),
        "master": master,
        "is_warehouse_shared": shared_warehouse,
    }
    warehouse, catalog = chosen_locations(session, where.warehouse, where.catalog)
    options["catalog_folder"] = catalog
    if topic is None:
        _run_enabled(session, warehouse, options)
        return
    options |= {
        "follow": follow,
        "table": where.name,
        "adopt": adopt,
        "timeout_s": session.timeout_s,
    }
    _show(_run(session, topic, warehouse, options), output)


def _check_target(topic: str | None, *, enabled: bool, is_for_one: bool) -> None:
    """Raise `CliError` unless there is a topic or --enabled, and options for one topic fit."""
    if (topic is None) is not enabled or (enabled and is_for_one):
        raise CliError(
            "LL0902",
            "specify either a TOPIC or --enabled; --follow, --name and --adopt are for one topic",
        )


def _show(result: dict[str, Any], output: Output) -> None:
    """Print the result of one topic, and in a table's format the scripts that read the table."""
    snippets = result.pop("snippets")
    show(document(result, snippets), output.format)
    if output.format == "table":
        for reader, text in snippets.items():
            show(f"\nRead it with {reader}:\n\n{text}")


def _errors(name: str | None) -> OnBadRecord | None:
    from lakelog.tables.archive.refusals import OnBadRecord

    return None if name is None else OnBadRecord(name)


def _run_enabled(session: CommandSession, warehouse: str, options: dict[str, Any]) -> None:
    """Archive all enabled topics until SIGINT or SIGTERM."""
    from lakelog.spark.archive.enabled import sync_enabled
    from lakelog.spark.archive.sync import SyncProgress
    from lakelog.spark.session import JavaMissingError

    def say(line: str) -> None:
        note(line, quiet=session.quiet)

    def show(topic: str, progress: SyncProgress) -> None:
        say(f"{topic}: {counted(progress.rows, 'record')} in the table")

    try:
        with stopping() as stop:
            sync_enabled(
                session.brokers,
                warehouse,
                progress=show,
                notice=say,
                stop=stop,
                **options,
            )
    except JavaMissingError as error:
        raise CliError("LL0802", str(error)) from error


def _run(
    session: CommandSession, topic: str, warehouse: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Run the archive job; return its result as data. SIGINT and SIGTERM end it cleanly."""
    from lakelog.spark.archive.sync import SyncError, SyncProgress, sync_topic
    from lakelog.spark.session import JavaMissingError
    from lakelog.tables.archive.reconcile import ProgressSource
    from lakelog.tables.iceberg.snippets import snippets
    from lakelog.tables.topic.errors import DataLossError, OptionError, TopicMissingError

    def show(progress: SyncProgress) -> None:
        say(f"{topic}: {counted(progress.rows, 'record')} in the table")

    def say(line: str) -> None:
        note(line, quiet=session.quiet)

    with open_admin(session) as admin:
        admin.topics.describe(topic)  # a wrong name fails before Spark starts, which takes seconds
    source = options.pop("adopt")
    options["adopt"] = None if source is None else ProgressSource(source)
    try:
        with stopping() as stop:
            result = sync_topic(
                session.brokers, topic, warehouse, progress=show, notice=say, stop=stop, **options
            )
    except TopicMissingError as error:
        raise CliError("LL0102", str(error)) from error
    except JavaMissingError as error:
        raise CliError("LL0802", str(error)) from error
    except (SyncError, DataLossError) as error:
        raise CliError("LL0803", str(error)) from error
    except (OptionError, ValueError) as error:
        raise CliError("LL0902", str(error)) from error
    if stop.is_set() and not options["follow"]:
        raise CliError("LL0604", "interrupted: some records are not in the table yet")
    return {
        "topic": topic,
        "table": ".".join(result.table),
        "metadata_path": result.metadata_path,
        "snapshot_id": result.snapshot_id,
        "rows_added": result.rows,
        "rows_moved": result.rows_moved,
        "rows_total": result.rows_total,
        "ends": {str(partition): end for partition, end in sorted(result.ends.items())},
        "snippets": snippets(result.metadata_path, result.catalog, result.table),
    }


def document(result: dict[str, Any], snippets: dict[str, str]) -> Document:
    """Return the table after a run as data. `ends` are the first offsets that are not archived."""
    ends = [
        {"partition": int(partition), "archived_to": end}
        for partition, end in result["ends"].items()
    ]
    facts = {key: value for key, value in result.items() if key != "ends"}
    data = {**facts, "partitions": ends, "snippets": snippets}
    return Document(data, facts, [Listing(ends)])


@app.command(
    topic="Topic to archive.",
    partition_by=Argument(
        "Partitions of a new table, such as `day(timestamp)` or "
        "`partition,hour(timestamp)` (default: the topic's key `table.partition_by`)."
    ),
    latest=Argument(
        "Keep a second table with the newest record of each key (the topic's key `table.latest`)."
    ),
)
def create(
    topic: str,
    *,
    partition_by: str | None = None,
    latest: bool = False,
    where: TableTarget,
    session: CommandSession,
    output: Output,
) -> None:
    """Create the Iceberg table of a topic, and enable its archive.

    From then on retention keeps the topic's records until they are archived: run `lakelog table
    sync --enabled`, or `lakelog table sync TOPIC --follow`. An existing table with equal columns is
    used.
    """
    require_libraries()
    warehouse, folder = chosen_locations(session, where.warehouse, where.catalog)
    from lakelog.tables.iceberg.warehouse import open_warehouse
    from lakelog.tables.topic.client import TopicClient
    from lakelog.tables.upkeep import ownership

    with (
        named_errors(),
        open_admin(session) as admin,
        TopicClient(session.brokers, client_id="lakelog", timeout_s=session.timeout_s) as client,
    ):
        admin.topics.describe(topic)
        opened = open_warehouse(warehouse, folder)
        address = ownership.create(
            admin, client, topic, opened, where.name or topic, partition_by, compacted=bool(latest)
        )
    table = ".".join(address.identifier)
    data = {"topic": topic, "table": table, "uuid": address.uuid, "warehouse": warehouse}
    show(Document(data, data), output.format)


@app.command("list")
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


@app.command(topic="Topic whose table to drop.", purge="Delete the files of the table, too.")
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


_ON_THE_PAGE = (
    "create",
    "list",
    "describe",
    "audit",
    "compact",
    "expire",
    "drop",
    "refresh",
    "sync",
)
_declared = app.commands | table_upkeep.app.commands
app.commands = {name: _declared[name] for name in _ON_THE_PAGE}
