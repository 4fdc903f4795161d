"""Writing the lines that `torture.history` reads."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from torture.history import COMMITTED, OK

Records = list[tuple[str, int, str]]


class Journal:
    """The lines of one process. Each is written at once, so that a kill loses none."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._operations = 0
        self._readers = 0
        self._reader = ""

    def invoke(self, f: str, **keys: Any) -> int:
        """Note the beginning of an operation; return its number."""
        self._operations += 1
        self._write(op=self._operations, f=f, type="invoke", **keys)
        return self._operations

    def end(self, operation: int, outcome: str, **keys: Any) -> None:
        self._write(op=operation, type=outcome, **keys)

    def note(self, f: str, **keys: Any) -> None:
        self._write(f=f, type=OK, **keys)

    def assign(
        self, positions: dict[str, int], group: str | None, isolation: str = COMMITTED
    ) -> None:
        """Note a new assignment; the records of `poll` belong to it from now on."""
        self._readers += 1
        self._reader = f"{self.process}#{self._readers}"
        keys = {"group": group, "isolation": isolation, "positions": positions}
        self.note("assign", reader=self._reader, **keys)

    def poll(self, records: Records) -> None:
        if records:
            self.note("poll", reader=self._reader, records=records)

    def _write(self, **line: Any) -> None:
        whole = {"at": time.monotonic_ns(), "process": self.process, **line}
        os.write(self._file, json.dumps(whole).encode() + b"\n")
