"""Removes a table from its catalog and, for a purge, its files.

A table without its files would break its readers, and files without a table cannot be found again.
So a table whose files are deleted is renamed first, by one change of the catalog, and leaves the
catalog before its last file, which is the metadata that the catalog loads. After a failure between
the two, `remove` finds it by that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.stored_files import stored_files

_SUFFIX = "~dropped"
"""No table of a topic has a name with this character (`warehouse.check_table_name`)."""


def remove(address: TableAddress, *, purge: bool) -> int:
    """Remove the table, if it exists, and complete a removal that failed; return deleted files.

    purge: delete the files, too. Raises `ValueError` if other tables or the catalog are among them,
    `OSError` and the errors of the catalog; then repeat it.
    """
    if not address.catalog_exists():
        return 0
    catalog, renamed = open_catalog(address.catalog), _renamed(address)
    deleted = _delete(catalog, renamed)
    with suppress(NoSuchTableError, NoSuchNamespaceError):
        if not purge:
            catalog.drop_table(address.identifier)
            return deleted
        _check_alone(catalog, address, catalog.load_table(address.identifier))
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
    """Delete the files of a renamed table and its entry; return how many files."""
    count = 0
    with suppress(NoSuchTableError, NoSuchNamespaceError):
        table = catalog.load_table(address.identifier)
        # A job that has not yet seen that its archive is disabled may add files meanwhile.
        while deleted := sum(_delete_file(table.io, path) for path in _paths(table)):
            count += deleted
        catalog.drop_table(address.identifier)
        count += _delete_file(table.io, table.metadata_location)
    return count


def _paths(table: Table) -> list[str]:
    """Return the files of the table without the metadata file, which the catalog loads."""
    files = stored_files(table.io, table.location())
    return [file.path for file in files if file.path != table.metadata_location]


def _delete_file(io: FileIO, path: str) -> bool:
    """Return false if the file does not exist any more."""
    with suppress(FileNotFoundError):
        io.delete(path)
        return True
    return False


def _check_alone(catalog: Catalog, address: TableAddress, table: Table) -> None:
    """Raise `ValueError` if the table's folder has files of the catalog or of other tables."""
    folder, file = _folder(table), address.catalog_file
    inside = [f"the catalog {file}"] if file and file.as_uri().startswith(folder) else []
    for other in _others(catalog, address):
        theirs = _folder(other)
        if theirs.startswith(folder) or folder.startswith(theirs):
            inside.append(f"the table {'.'.join(other.name())}")
    if inside:
        raise ValueError(
            f"the folder {table.location()} of the table also has {', '.join(inside)}: drop it "
            "without --purge, and delete its files by hand"
        )


def _others(catalog: Catalog, address: TableAddress) -> Iterator[Table]:
    """Yield the other tables of the catalog; leave out any whose metadata is missing."""
    for namespace in catalog.list_namespaces():
        for identifier in catalog.list_tables(namespace):
            if identifier != address.identifier:
                with suppress(NoSuchTableError, FileNotFoundError):
                    yield catalog.load_table(identifier)


def _folder(table: Table) -> str:
    location: str = table.location()
    return location.rstrip("/") + "/"
