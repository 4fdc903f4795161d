"""Where the tables of topics are: from options, topic keys, or the broker's data folder.

A table is opened for a command here, and errors of tables become a `CliError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lakelog.cli.declaration import Arguments
from lakelog.cli.failures import CliError
from lakelog.cli.options import CommandSession, open_admin

if TYPE_CHECKING:
    from lakelog.tables.archive.location import TableLocation
    from lakelog.tables.hybrid.archives import TopicArchive
    from lakelog.tables.topic.client import TopicClient, TopicMeta


_NEEDED = ("pyspark", "pyarrow", "pyiceberg")
_WAREHOUSE = "warehouse"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseChoice:
    """The warehouse that a command looks into, as `lakelog table sync` got it."""

    warehouse: str | None = None
    catalog: str | None = None

    arguments: ClassVar[Arguments] = {
        "warehouse": "Folder or URI of the tables (default: as the topic's keys name it, or "
        "`warehouse` in the broker's data folder).",
        "catalog": "Local folder of the catalog (default: the warehouse).",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChoice(WarehouseChoice):
    """The table that a command is about."""

    name: str | None = None

    arguments: ClassVar[Arguments] = {
        **WarehouseChoice.arguments,
        "name": "Name of the table (default: the topic's).",
    }

    @property
    def words(self) -> str:
        """The options of this choice, as a user writes them."""
        given = {"warehouse": self.warehouse, "catalog": self.catalog, "name": self.name}
        return "".join(f" --{option} {value}" for option, value in given.items() if value)


class TableTarget(TableChoice):
    """The table that a command writes, which may be new."""

    __slots__ = ()

    arguments: ClassVar[Arguments] = {
        **TableChoice.arguments,
        "warehouse": "Folder or URI of the tables: file:, s3:, gs:, abfs:, hdfs: (default: "
        "`warehouse` in the broker's data folder).",
        "catalog": "Local folder of the catalog, and of the checkpoints and Spark's log of `sync` "
        "(default: the warehouse; for a remote warehouse `warehouse` in the broker's data folder).",
    }


ANY_WAREHOUSE = WarehouseChoice()
ANY_TABLE = TableChoice()


def require_libraries() -> None:
    """Check that the optional libraries are installed. Raises `CliError` LL0801."""
    missing = [module for module in _NEEDED if find_spec(module) is None]
    if missing:
        raise CliError(
            "LL0801",
            f"{', '.join(missing)} not installed",
            "pip install '.[spark]' in a checkout of lakelog",
        )


def chosen_locations(
    session: CommandSession, warehouse: str | None, catalog: str | None
) -> tuple[str, str | None]:
    """Return the warehouse and the catalog's folder (`None` if it is the warehouse).

    Raises `CliError` LL0902 for an unsupported scheme, and if this host has no default folder.
    """
    from lakelog.tables.iceberg.warehouse import is_remote

    try:
        elsewhere = warehouse is not None and is_remote(warehouse)
    except ValueError as error:
        raise CliError("LL0902", str(error)) from error
    if warehouse is not None and (catalog is not None or not elsewhere):
        return warehouse, catalog
    folder = _default_folder(session, "--catalog" if elsewhere else "--warehouse")
    return warehouse or folder, catalog or folder


def find_tables(
    session: CommandSession,
    client: TopicClient,
    topics: dict[str, TopicMeta],
    choice: WarehouseChoice = ANY_WAREHOUSE,
) -> dict[str, TableLocation]:
    """Return the places of all tables of topics.

    The choice names the warehouse to search. Without it the topics' keys name tables, and the
    default warehouses of brokers on this host are searched. Raises `CliError`, `KafkaError`, and as
    `stored_locations`.
    """
    from lakelog.tables.upkeep.ownership import named_locations, stored_locations

    if choice.warehouse or choice.catalog:
        where, folder = chosen_locations(session, choice.warehouse, choice.catalog)
        return stored_locations(topics, [(where, folder or "")])
    named = named_locations(client, topics)
    others = {topic: meta for topic, meta in topics.items() if topic not in named}
    if not others:
        return named
    return named | stored_locations(others, [(folder, "") for folder in _default_folders(session)])


def find_table(
    session: CommandSession, client: TopicClient, topic: str, choice: TableChoice = ANY_TABLE
) -> TableLocation | None:
    """Return the place of a topic's table, whether or not the table exists; `None` without one.

    Raises as `find_tables`, and `TopicMissingError`.
    """
    from lakelog.tables.archive.location import TableLocation

    table = find_tables(session, client, client.describe([topic]), choice).get(topic)
    if choice.name is None and (table or choice.warehouse is None):
        return table
    if choice.warehouse or choice.catalog or table is None:
        where, folder = chosen_locations(session, choice.warehouse, choice.catalog)
    else:
        where, folder = table.warehouse, table.catalog
    name = choice.name or topic
    if table and (table.name, table.warehouse, table.catalog) == (name, where, folder or ""):
        return table
    return TableLocation(topic, name, where, folder or "", {}, is_enabled=False)


def _default_folder(session: CommandSession, option: str) -> str:
    """Return the default folder, in the data folder of a broker on this host."""
    for folder in _default_folders(session):
        return folder
    raise CliError(
        "LL0902", "the broker's data folder is not on this host", f"specify {option} FOLDER"
    )


def _default_folders(session: CommandSession) -> list[str]:
    """Return the default warehouses of the brokers on this host, whether or not they exist."""
    with open_admin(session) as admin:
        folders = [Path(folder.path) for folder in admin.log_dirs()]
    return [str(folder / _WAREHOUSE) for folder in folders if folder.is_dir()]


def at(table: TableLocation) -> TableChoice:
    """Return the options that name a place."""
    return TableChoice(warehouse=table.warehouse, catalog=table.catalog or None, name=table.name)


@contextmanager
def opened_archive(
    session: CommandSession, topic: str, choice: TableChoice = ANY_TABLE
) -> Iterator[tuple[TopicClient, TopicArchive]]:
    """Open the table of a topic. Raises `CliError`: LL0102, LL0804, LL0805."""
    require_libraries()
    from lakelog.tables.hybrid.archives import open_locations
    from lakelog.tables.topic.client import TopicClient

    with (
        named_errors(),
        TopicClient(
            session.brokers, client_id="lakelog", timeout_s=session.timeout_s, keep_damaged=True
        ) as client,
    ):
        table = find_table(session, client, topic, choice)
        archive = open_locations(client, {topic: table}).get(topic) if table else None
        if archive is None:
            raise missing_table(topic, choice)
        yield client, archive


def missing_table(topic: str, choice: TableChoice) -> CliError:
    """Return the error for a topic without a table."""
    if choice != ANY_TABLE:
        return CliError("LL0804", f"topic {topic!r} has no table there:{choice.words}")
    return CliError(
        "LL0804",
        f"topic {topic!r} has no table, or nothing is archived in it yet",
        f"lakelog table sync {topic}; for a table elsewhere add --warehouse FOLDER",
    )


@contextmanager
def named_errors() -> Iterator[None]:
    """Raise errors of tables as `CliError`."""
    from lakelog.tables.archive.history import ProgressMismatchError
    from lakelog.tables.compacted.table import CompactedTableError
    from lakelog.tables.iceberg.commits import UnknownOutcomeError
    from lakelog.tables.topic.errors import (
        ArchiveUnreadableError,
        BadRecordError,
        DataLossError,
        TopicMissingError,
    )
    from lakelog.tables.upkeep.compaction import UNCHANGED

    try:
        yield
    except TopicMissingError as error:
        raise CliError("LL0102", str(error)) from error
    except ArchiveUnreadableError as error:
        # The option is for queries; see `hybrid/archives.py`.
        text = str(error).removesuffix(". Set the option archive=none to read the log only")
        raise CliError("LL0805", text) from error
    except (DataLossError, BadRecordError, ProgressMismatchError, CompactedTableError) as error:
        raise CliError("LL0803", str(error)) from error
    except (*UNCHANGED, UnknownOutcomeError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CliError("LL0805", text) from error
    except ValueError as error:
        raise CliError("LL0902", str(error)) from error


@contextmanager
def repeatable(command: str) -> Iterator[None]:
    """Add a hint to errors of tables: the command, repeated, completes the failed one."""
    try:
        with named_errors():
            yield
    except CliError as error:
        raise CliError(
            error.code, error.message, f"run `{command}` again to complete it"
        ) from error
