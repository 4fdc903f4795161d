"""The Iceberg side of the archive: catalog, table, columns, properties.

Whoever imports this imports PyIceberg.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from functools import cache

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyiceberg.utils.config import Config
from sqlalchemy.exc import SQLAlchemyError

from lakelog.spark.archive.address import TableAddress
from lakelog.spark.archive.warehouse import CATALOG_NAME

SNAPSHOTS_MAX = 100
"""Every commit copies the list of snapshots; left alone it would be slower each time."""

_HEADER = StructType(
    NestedField(10, "key", StringType(), required=False),
    NestedField(11, "value", BinaryType(), required=False),
)
# Ids are numbered level by level, as PyIceberg renumbers them when it creates a table.
SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "partition", IntegerType(), required=True),
    NestedField(3, "offset", LongType(), required=True),
    NestedField(4, "timestamp", TimestamptzType(), required=True),
    NestedField(5, "timestampType", IntegerType(), required=True),
    NestedField(6, "key", BinaryType(), required=False),
    NestedField(7, "value", BinaryType(), required=False),
    NestedField(8, "headers", ListType(9, _HEADER, element_required=True), required=False),
)
PROPERTIES = {
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(SNAPSHOTS_MAX),
}
"""No retries: PyIceberg's own would repeat a lost commit without looking at the progress again."""


def open_catalog(properties: Mapping[str, str]) -> Catalog:
    """One for each set of properties and process, so its connections are used again."""
    return _open_catalog(tuple(sorted(properties.items())))


@cache
def _open_catalog(properties: tuple[tuple[str, str], ...]) -> Catalog:
    """Two processes that create the catalog's tables at once disturb each other: one retries."""
    try:
        return load_catalog(CATALOG_NAME, **dict(properties))
    except SQLAlchemyError:
        time.sleep(0.5)
        return load_catalog(CATALOG_NAME, **dict(properties))


def open_file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """What reads and writes files as the catalog would have it, without opening the catalog."""
    environment = Config().get_catalog_config(CATALOG_NAME) or {}
    return load_file_io({**environment, **properties}, location)


def ensure_table(address: TableAddress) -> Table:
    """Loads the table, creating it and its namespace first if they are missing."""
    catalog = open_catalog(address.catalog)
    try:
        return catalog.load_table(address.identifier)
    except NoSuchTableError:
        pass
    with contextlib.suppress(NamespaceAlreadyExistsError, SQLAlchemyError):
        catalog.create_namespace_if_not_exists(address.identifier[0])
    try:
        properties = {**PROPERTIES, "schema.name-mapping.default": _name_mapping()}
        return catalog.create_table(address.identifier, SCHEMA, properties=properties)
    except TableAlreadyExistsError:
        return catalog.load_table(address.identifier)


def _name_mapping() -> str:
    return str(SCHEMA.name_mapping.model_dump_json())
