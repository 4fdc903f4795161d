"""Where the tables of topics are: from options, topic keys, or the broker's data folder."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from lakelog.cli.connecting import open_admin
from lakelog.cli.failures import CliError
from lakelog.cli.options import Session

_NEEDED = ("pyspark", "pyarrow", "pyiceberg")
_WAREHOUSE = "warehouse"


def require_libraries() -> None:
    """Check that the optional libraries are installed. Raises `CliError` LL0801."""
    missing = [module for module in _NEEDED if find_spec(module) is None]
    if missing:
        raise CliError(
            "LL0801",
            f"{', '.join(missing)} not installed",
            "pip install 'lakelog[spark]', or '.[spark]' in a checkout",
        )


def chosen_places(
    session: Session, warehouse: str | None, catalog: str | None
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


def _default_folder(session: Session, option: str) -> str:
    """Return the default folder, in the data folder of a broker on this host."""
    with open_admin(session) as admin:
        folders = [Path(folder.path) for folder in admin.log_dirs()]
    for folder in folders:
        if folder.is_dir():
            return str(folder / _WAREHOUSE)
    raise CliError(
        "LL0902", "the broker's data folder is not on this host", f"specify {option} FOLDER"
    )
