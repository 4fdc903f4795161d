"""Optional packages, and the choice between a compiled implementation and plain Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

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
_Compiled = TypeVar("_Compiled")
_COMPILED_FROM = 100_000
"""Rows that plain Python handles in about the time that loading the compiled loops takes."""


class CompiledOrPlain(Generic[_Compiled]):
    """The choice between compiled loops and plain Python, for one kind of work of this process.

    work: for log lines. load: returns the loops, with or without those for headers.
    """

    def __init__(self, work: str, load: Callable[[bool], _Compiled]) -> None:
        self.plain_rows = 0
        """The number of rows that the process has handled in plain Python."""
        self._work = work
        self._load = load
        self._loaded: dict[bool, _Compiled | None] = {}

    def choose(self, compiled: bool | None, rows: int, *, with_headers: bool) -> _Compiled | None:
        """Return the loops if they are requested, loaded, or worth it for `rows`.

        compiled: whether they are requested; `None` leaves the choice.
        """
        if compiled is None:
            is_worth_it = self.plain_rows + rows >= _COMPILED_FROM
            compiled = is_worth_it or with_headers in self._loaded
        if compiled and with_headers not in self._loaded:
            self._loaded[with_headers] = self._loops(with_headers)
        return self._loaded[with_headers] if compiled else None

    def _loops(self, with_headers: bool) -> _Compiled | None:
        """Return the loops, or log why there are none: plain Python is only slower."""
        try:
            return self._load(with_headers)
        except ImportError as error:
            text = f"which is several times slower: {error} (pip install '.[fast]')"
        except Exception as error:  # noqa: BLE001 - a compiler may fail in any way
            text = f"the compiled loop failed: {error!r}"
        _log.warning("%s in plain Python, %s", self._work, text, extra=event("columns_plain"))
        return None
