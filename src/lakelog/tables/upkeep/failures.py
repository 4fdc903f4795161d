"""Errors of upkeep after which a table is as before."""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import SQLAlchemyError

from lakelog.tables.iceberg.address import TableReplacedError
from lakelog.tables.iceberg.catalog import CatalogUnwritableError
from lakelog.tables.upkeep.compaction import CompactionError

UNCHANGED = (
    CompactionError,
    TableReplacedError,
    CommitFailedException,
    CatalogUnwritableError,
    SQLAlchemyError,
    OSError,
)
"""The upkeep failed, or another program changed the table first."""
