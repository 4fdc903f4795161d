"""Final and transient errors of an archive job."""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import SQLAlchemyError

from lakelog.base.errors import KafkaError
from lakelog.tables.archive.dead_letters import DeadLettersError
from lakelog.tables.archive.history import ProgressMismatchError
from lakelog.tables.archive.progress import (
    ForeignTableError,
    ProgressConflictError,
    ProgressFormatError,
)
from lakelog.tables.iceberg.address import TableReplacedError
from lakelog.tables.iceberg.catalog import CatalogUnwritableError
from lakelog.tables.iceberg.data_file import FolderUnwritableError
from lakelog.tables.registry.errors import RegistryAccessError, RegistryUnavailableError
from lakelog.tables.topic.errors import (
    BadRecordError,
    DataLossError,
    TopicGoneError,
    TopicMissingError,
)

FINAL = (
    DataLossError,
    TopicGoneError,
    BadRecordError,
    TopicMissingError,
    ProgressMismatchError,
    ProgressFormatError,
    ForeignTableError,
    TableReplacedError,
    DeadLettersError,
    CatalogUnwritableError,
    FolderUnwritableError,
    RegistryAccessError,
)
"""Errors that end the job.

Errors of Spark's processes arrive as text, which is matched by class name, not by subclass. So the
subclasses `LogDivergedError` and `LogReplacedError` of `DataLossError` do not end the job: it
restarts, and the reconciliation decides about them.
"""
PASSING = (
    KafkaError,
    ProgressConflictError,
    CommitFailedException,
    SQLAlchemyError,
    OSError,
    RegistryUnavailableError,
)
"""Errors after which a new attempt may succeed."""


class SyncError(Exception):
    """The archive job cannot continue, for the reason in the text."""
