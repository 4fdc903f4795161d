"""Removes a table from its catalog, and its files if they are to go.

A table without its files would break its readers, and files without a table cannot be found again.
So a table whose files are deleted is renamed first, by one change of the catalog, and leaves the
catalog after its last file. After a failure between the two, `remove` finds it by that name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.listing import stored_files

_SUFFIX = "~dropped"
"""No table of a topic has a name with this character (`warehouse.check_table_name`)."""


def remove(address: TableAddress, *, purge: bool) -> int:
    """Remove the table, if it exists, and complete a removal that failed; return deleted files.

    purge: delete the files, too. Raises `OSError` and the errors of the catalog; then repeat it.
    """
    if not address.catalog_exists():
        return 0
    catalog, renamed = open_catalog(address.catalog), _renamed(address)
    deleted = _delete(catalog, renamed)
    with suppress(NoSuchTableError):
        if not purge:
            catalog.drop_table(address.identifier)
            return deleted
        # PyIceberg reads the metadata file after the change, which `_delete` does not need.
        with suppress(FileNotFoundError):
            catalog.rename_table(address.identifier, renamed.identifier)
    return deleted + _delete(catalog, renamed)


def is_unfinished(address: TableAddress) -> bool:
    """Return whether a removal has not deleted all files, and there is no new table.

    Raises the errors of the catalog.
    """
    return not address.exists() and address.catalog_exists() and _is_listed(_renamed(address))


def _renamed(address: TableAddress) -> TableAddress:
    namespace, name = address.identifier
    return replace(address, identifier=(namespace, name + _SUFFIX), uuid="")


def _is_listed(address: TableAddress) -> bool:
    """Return whether the catalog has the table, without an access to its files."""
    catalog = open_catalog(address.catalog)
    namespace = address.identifier[0]
    return catalog.namespace_exists(namespace) and address.identifier in catalog.list_tables(
        namespace
    )


def _delete(catalog: Catalog, address: TableAddress) -> int:
    """Delete the files of a renamed table, and then its entry; return how many files."""
    count = 0
    try:
        table = catalog.load_table(address.identifier)
    except NoSuchTableError:
        return 0
    except FileNotFoundError:
        pass  # A removal deleted the last file, which this one is, and not the entry.
    else:
        # The catalog needs it to load the table once more.
        last = table.metadata_location
        paths = [file.path for file in stored_files(table.io, table.location())]
        for path in sorted(paths, key=lambda path: path == last):
            with suppress(FileNotFoundError):
                table.io.delete(path)
                count += 1
    catalog.drop_table(address.identifier)
    return count
