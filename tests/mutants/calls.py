"""Which functions of the product each test calls, and how long it takes.

The notes are kept with the hash of the test's file: only tests of changed files are run again.
A test is not charged with calls that a shared fixture or cache has made before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import lakelog
from mutants.nearest import Note, key_of

_WRITTEN_EVERY_S = 60.0
_FOLDER = str(Path(lakelog.__file__).parent)


class Calls:
    """Notes of tests in a file of JSON, by the name of the test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, tuple[str, Note]] = {}
        self._written_s = time.monotonic()
        if file.exists():
            self.reload()

    def reload(self) -> None:
        """Read the notes of a fork."""
        found = json.loads(self._file.read_text())
        self._known = {name: (digest, Note(*note)) for name, (digest, note) in found.items()}

    def unknown(self, items: Iterable[pytest.Item]) -> list[pytest.Item]:
        """Tests without a note of their file as it is; forgets notes of tests that are gone."""
        digests = {item.nodeid: _digest(item.path) for item in items}
        self._known = {
            name: known for name, known in self._known.items() if digests.get(name) == known[0]
        }
        return [item for item in items if item.nodeid not in self._known]

    @contextlib.contextmanager
    def noting(self, item: pytest.Item) -> Iterator[None]:
        called: set[CodeType] = set()

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                called.add(frame.f_code)

        begin = time.monotonic()
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            known = Note(time.monotonic() - begin, sorted(_keys(called)))
            self._known[item.nodeid] = _digest(item.path), known

    def write_at_times(self) -> None:
        """Write the notes once a minute: an interrupted run keeps them."""
        if time.monotonic() - self._written_s > _WRITTEN_EVERY_S:
            self.write()

    def write(self) -> None:
        """Replace the file by the notes of this process."""
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._known))
        part.replace(self._file)
        self._written_s = time.monotonic()

    def read(self) -> dict[str, Note]:
        """The notes of the tests, by their names."""
        return {name: note for name, (_, note) in self._known.items()}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _keys(called: set[CodeType]) -> set[str]:
    return {
        key_of(os.path.relpath(code.co_filename, _FOLDER), code.co_qualname)
        for code in called
        if code.co_filename.startswith(_FOLDER)
    }
