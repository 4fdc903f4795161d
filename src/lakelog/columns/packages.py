"""Optional packages, and the choice between a compiled implementation and plain Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from lakelog.base.events import event


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


_log = logging.getLogger("lakelog.columns")
_Implementation = TypeVar("_Implementation")


def load_compiled(work: str, load: Callable[[], _Implementation]) -> _Implementation | None:
    """Return the result of `load`, or log why there is none: plain Python is only slower.

    work: the purpose of the implementation, for the log line.
    """
    try:
        return load()
    except ImportError as error:
        _log.warning(
            "%s in plain Python, which is several times slower: %s (pip install '.[fast]')",
            work,
            error,
            extra=event("columns_plain"),
        )
    except Exception as error:  # noqa: BLE001 - a compiler may fail in any way
        _log.warning(
            "%s in plain Python, the compiled loop failed: %r",
            work,
            error,
            extra=event("columns_plain"),
        )
    return None
