"""The archive's table of a topic, opened for a command, and errors of tables as `CliError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakelog.cli.failures import CliError
from lakelog.cli.options import Session
from lakelog.cli.table_places import ANY_TABLE, TableChoice, find_table, require_libraries

if TYPE_CHECKING:
    from lakelog.tables.joined.archives import TopicArchive
    from lakelog.tables.topic.client import TopicClient


@contextmanager
def opened_archive(
    session: Session, topic: str, choice: TableChoice = ANY_TABLE
) -> Iterator[tuple[TopicClient, TopicArchive]]:
    """Open the table of a topic. Raises `CliError`: LL0102, LL0804, LL0805."""
    require_libraries()
    from lakelog.tables.joined.archives import open_places
    from lakelog.tables.topic.client import TopicClient

    with (
        named_errors(),
        TopicClient(
            session.brokers, client_id="lakelog", timeout_s=session.timeout_s, keep_damaged=True
        ) as client,
    ):
        place = find_table(session, client, topic, choice)
        archive = open_places(client, {topic: place}).get(topic) if place else None
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
    from lakelog.tables.iceberg.exchange import UnknownOutcomeError
    from lakelog.tables.latest.progress import LatestTableError
    from lakelog.tables.topic.errors import (
        ArchiveUnreadableError,
        BadRecordError,
        DataLossError,
        TopicMissingError,
    )
    from lakelog.tables.upkeep.failures import UNCHANGED

    try:
        yield
    except TopicMissingError as error:
        raise CliError("LL0102", str(error)) from error
    except ArchiveUnreadableError as error:
        # The option is for queries; see `joined/archives.py`.
        text = str(error).removesuffix(". Set the option archive=none to read the log only")
        raise CliError("LL0805", text) from error
    except (DataLossError, BadRecordError, ProgressMismatchError, LatestTableError) as error:
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
