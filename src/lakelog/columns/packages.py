"""Optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class MissingPackageError(ImportError):
    """A package that an extra of lakelog installs is missing."""


def optional(name: str, extra: str) -> Any:
    """Import and return the package `name`.

    Raises `MissingPackageError`, which names the `extra` of lakelog that installs the package.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{name} is required: pip install '.[{extra}]' ({error})", name=name
        ) from error
