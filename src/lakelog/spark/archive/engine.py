"""The interface between an archive job and the engine that runs its query.

A query plans batches, runs their tasks and commits them (`stream.py`). `SparkEngine` runs it in
Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakelog.tables.archive.job import ArchiveJob


class QueryFailedError(Exception):
    """A query failed. The text is the reason; that of a Python error begins with its class."""


@dataclass(eq=False)
class EngineEndedError(Exception):
    """The engine has ended, or does not start.

    A signal for a whole group of processes, as of `systemctl stop`, ends the engine as well: then
    this is no failure of the job. failure: the error to raise without such a signal.
    """

    failure: Exception


class Query(Protocol):
    """A running query."""

    def wait(self, timeout_s: float) -> bool:
        """Return whether the query has ended within `timeout_s`.

        Raises `QueryFailedError` and `EngineEndedError`.
        """

    def stop(self) -> None:
        """Stop the query, and return when it has stopped."""


class Engine(Protocol):
    """Runs the queries of one archive job, one after the other.

    `tasks` and `start` raise `EngineEndedError`.
    """

    @property
    def tasks(self) -> int:
        """How many tasks of a query run at once."""

    def start(self, job: ArchiveJob, every_s: float | None) -> Query:
        """Start a query at the end of the job's table.

        every_s: seconds between two batches; `None` for a query that ends when it has archived all
        records that the topic has now.
        """

    def close(self) -> None:
        """End what `start` has opened."""
