"""Kills at named points of the archive, for the tests that put this folder on PYTHONPATH.

A fault is a file in the folder LAKELOG_TEST_FAULTS: its name is the point, its content the victim.
The first process that reaches the point claims the file by renaming it and carries out the fault,
so a fault happens once. A process that cannot carry it out returns the file. The product has no
code for faults: its functions are wrapped when they are imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_FAULTS = Path(os.environ.get("LAKELOG_TEST_FAULTS", "/nonexistent"))


def reach(point: str) -> None:
    name = f"{uuid.uuid4().hex}-{point}"
    claimed, taken = _FAULTS / f"claimed-{name}", _FAULTS / f"taken-{name}"
    try:
        (_FAULTS / point).rename(claimed)
    except FileNotFoundError:
        return
    victim = claimed.read_text()
    if victim == "task":
        claimed.rename(taken)
        raise RuntimeError(f"the test makes this task fail at {point}")
    pid = {"worker": os.getpid, "jvm": _jvm, "driver": _driver}[victim]()
    if pid is None:
        claimed.rename(_FAULTS / point)
        return
    claimed.rename(taken)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)


def _jvm() -> int | None:
    """The nearest ancestor that is a Java; `None` if it is dead already."""
    pid = os.getpid()
    while pid > 1 and _stat(pid)[0] != "java":
        pid = _stat(pid)[1]
    return pid if pid > 1 else None


def _driver() -> int | None:
    """Return Java's parent, unless the driver is dead and another process adopted Java."""
    jvm = _jvm()
    if jvm is None:
        return None
    parent = _stat(jvm)[1]
    ours = b"archive_driver.py" in Path(f"/proc/{parent}/cmdline").read_bytes()
    return parent if ours else None


def _stat(pid: int) -> tuple[str, int]:
    """Name and parent of a process."""
    name, rest = Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
    return name, int(rest.split()[1])


def _is_warm_up(topic: str) -> bool:
    return topic.endswith("-warm-up")


def _wrap_stream(module: Any) -> None:
    real = module.write_ranges

    def write_ranges(bootstrap: str, ranges: Any, *args: Any, **kwargs: Any) -> Any:
        if not ranges or _is_warm_up(ranges[0].topic):
            return real(bootstrap, ranges, *args, **kwargs)
        reach("before-writing")
        written = real(bootstrap, ranges, *args, **kwargs)
        reach("file-written")
        reach("failing-task")
        return written

    module.write_ranges = write_ranges


def _wrap_commit(module: Any) -> None:
    real_append, real_abandon = module.append, module.abandon_batch

    def append(table: Any, *args: Any) -> None:
        real_append(table, *args)
        if not _is_warm_up(table.name()[-1]):
            reach("after-the-commit")

    def abandon_batch(address: Any, paths: Sequence[str]) -> None:
        address.load()
        reach("inside-abort")
        real_abandon(address, paths)

    module.append, module.abandon_batch = append, abandon_batch


_WRAPPERS: dict[str, Callable[[ModuleType], None]] = {
    "lakelog.spark.archive.stream": _wrap_stream,
    "lakelog.tables.archive.commit": _wrap_commit,
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _WRAPPERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        real = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            real(module)
            _WRAPPERS[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
