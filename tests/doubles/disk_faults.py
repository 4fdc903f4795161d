"""Injected failures of a disk in memory."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Operation = Literal["read", "write", "truncate", "sync", "name"]


def kind_of(path: Path) -> str:
    """Return the suffix of a path, such as `.log`, or the whole name without one."""
    return path.suffix or path.name


@dataclass(slots=True)
class Fault:
    """`times` failures of one operation, on paths that end in `suffix`, after `skip` others."""

    operation: Operation
    code: int
    suffix: str
    skip: int
    partial: int
    """How many bytes a write stores before it fails."""
    times: int

    def matches(self, operation: Operation, path: Path) -> bool:
        return self.operation == operation and str(path).endswith(self.suffix)

    def error(self, path: Path) -> OSError:
        return OSError(self.code, os.strerror(self.code), str(path))


class Faults:
    """Failures that are still to happen; `taken` counts past ones by error and kind of file."""

    def __init__(self) -> None:
        self._coming: list[Fault] = []
        self.taken: Counter[str] = Counter()

    @property
    def are_coming(self) -> bool:
        return bool(self._coming)

    def add(self, fault: Fault) -> None:
        self._coming.append(fault)

    def forget(self) -> None:
        self._coming.clear()

    def take(self, operation: Operation, path: Path) -> Fault | None:
        """Return the fault of an operation, if any; count it."""
        for fault in self._coming:
            if not fault.matches(operation, path):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._coming.remove(fault)
            self.taken[f"{errno.errorcode[fault.code]} {kind_of(path)}"] += 1
            return fault
        return None
