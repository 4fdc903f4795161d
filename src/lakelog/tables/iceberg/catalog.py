"""PyIceberg's catalog and files, opened by the properties of a catalog.

Importing this module imports PyIceberg, which takes about a second.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from functools import cache

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.utils.config import Config
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import SQLAlchemyError

from lakelog.base.errors import NO_SPACE
from lakelog.tables.iceberg.warehouse import CATALOG_NAME, WarehouseFullError

_RETRIES = 5
"""Each of the catalog's two tables may fail once; a locked database may take longer."""
_FIRST_PAUSE_S = 0.02
"""Longest pause before the first retry. The longest of each further one is twice as long."""


class CatalogLockedError(OSError):
    """Another process holds a lock on the catalog for longer than a statement waits."""


class CatalogUnwritableError(Exception):
    """The catalog rejects every change: it is read-only for this process."""


NOT_COMMITTED = (CommitFailedException, CatalogLockedError)
"""Errors of a commit that has certainly failed; a new attempt may succeed."""


def raise_if_unwritable(error: Exception, properties: Mapping[str, str]) -> None:
    """Raise `CatalogUnwritableError` or `WarehouseFullError` if this error of a commit shows it.

    Such a commit has certainly failed.

    SQLite rolls the transaction back, and PyIceberg writes the files of a commit before
    it changes the catalog.
    """
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        raise WarehouseFullError(
            f"the disk of the warehouse {properties.get('warehouse', '')} is full: free space. The "
            "table has all earlier commits"
        ) from error
    if not isinstance(error, SQLAlchemyError):
        return
    where = properties.get("uri", "").removeprefix("sqlite:///")
    if "readonly database" in str(error):
        raise CatalogUnwritableError(
            f"the catalog {where} is read-only for this process: grant write access to the file "
            "and to its folder, and start again. The table has all earlier commits"
        ) from error
    if "disk is full" in str(error):
        raise WarehouseFullError(
            f"the disk of the catalog {where} is full: free space. The table has all earlier "
            "commits"
        ) from error


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """Return the catalog. A process opens one per set of properties and reuses its connections.

    Raises `ValueError` for properties that name no known catalog, and the errors of its connection.
    """
    return _open_catalog(tuple(sorted(properties.items())))


@cache
def _open_catalog(properties: tuple[tuple[str, str], ...]) -> Catalog:
    """Return a new catalog.

    If two processes create the catalog's own tables at the same time, one fails and retries. There
    is no event to wait for, so the pauses are random, short at first and then longer.
    """
    for attempt in range(_RETRIES):
        try:
            return _loaded(dict(properties))
        except SQLAlchemyError:
            time.sleep(random.uniform(0, _FIRST_PAUSE_S * 2**attempt))
    return _loaded(dict(properties))


def _loaded(properties: dict[str, str]) -> Catalog:
    try:
        catalog = load_catalog(CATALOG_NAME, **properties)
    except SQLAlchemyError as error:
        _raise_if_locked(error, properties)
        raise
    if isinstance(catalog, SqlCatalog):

        def translate(context: ExceptionContext) -> None:
            _raise_if_locked(context.original_exception, properties)

        event.listen(catalog.engine, "handle_error", translate)
    return catalog


def _raise_if_locked(error: BaseException, properties: Mapping[str, str]) -> None:
    """Raise `CatalogLockedError` if SQLite has waited for a lock in vain; nothing is changed."""
    if "database is locked" in str(error):
        where = properties.get("uri", "").removeprefix("sqlite:///").partition("?")[0]
        raise CatalogLockedError(
            f"another process has locked the catalog {where}: end it, or wait until it has finished"
        ) from error


def open_file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return access to files with the catalog's settings, without opening the catalog."""
    environment = Config().get_catalog_config(CATALOG_NAME) or {}
    return load_file_io({**environment, **properties}, location)
