"""Kills at named points of archive and sink, for tests that put this folder on PYTHONPATH.

A fault is a file in the folder LAKELOG_TEST_FAULTS: its name is the point, its content the victim.
The first process that reaches the point claims the file by renaming it and carries out the fault,
so a fault happens once. A process that cannot carry it out returns the file. With the victims
`pause` (this process) and `stop` (this process and the nearest Java above it, by SIGSTOP) the file
is held until the test renames it; it then contains the ids of these processes. The product has no
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
    if victim in ("pause", "stop"):
        _hold(claimed, point, stops=victim == "stop")
        return
    if victim == "task":
        claimed.rename(taken)
        raise RuntimeError(f"the test makes this task fail at {point}")
    pid = {"jvm": _jvm, "driver": _driver, "self": os.getpid}[victim]()
    if pid is None:
        claimed.rename(_FAULTS / point)
        return
    claimed.rename(taken)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)


def _hold(claimed: Path, point: str, *, stops: bool) -> None:
    """Wait until the test renames the file."""
    held = claimed.with_name(claimed.name.replace("claimed", "held", 1))
    jvm = _jvm() if stops else None
    if stops and jvm is None:
        claimed.rename(_FAULTS / point)
        return
    claimed.write_text(str(os.getpid()) if jvm is None else f"{os.getpid()} {jvm}")
    claimed.rename(held)
    if jvm is not None:
        os.kill(jvm, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
    while held.exists():
        time.sleep(0.01)


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
    words = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
    ours = any(
        word.endswith((b"archive_driver.py", b"sink_driver.py", b"/lakelog")) for word in words
    )
    return parent if ours else None


def _stat(pid: int) -> tuple[str, int]:
    """Name and parent of a process."""
    name, rest = Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
    return name, int(rest.split()[1])


def _is_warm_up(topic: str) -> bool:
    return topic.endswith("-warm-up")


def _wrap_stream(module: Any) -> None:
    module.RangeReader.latestOffset = _then(module.RangeReader.latestOffset, "planning")
    real = module.write_ranges

    def write_ranges(job: Any, ranges: Any, *args: Any, **kwargs: Any) -> Any:
        if not ranges or _is_warm_up(ranges[0].topic):
            return real(job, ranges, *args, **kwargs)
        reach("before-writing")
        written = real(job, ranges, *args, **kwargs)
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


def _is_armed(point: str) -> bool:
    return (_FAULTS / point).exists()


def _wrap_sending(module: Any) -> None:
    """Reach `task-writing` when some records of a task are acknowledged and others are not sent."""
    real = module.Producer.send_table

    def send_table(self: Any, rows: Any, *args: Any) -> Any:
        half = rows.num_rows // 2
        if not half or not _is_armed("task-writing"):
            return real(self, rows, *args)
        real(self, rows.slice(0, half), *args)
        self.flush()
        reach("task-writing")
        return real(self, rows.slice(half), *args)

    module.Producer.send_table = send_table


def _wrap_task(module: Any) -> None:
    real = module.write_rows

    def write_rows(*args: Any, **kwargs: Any) -> Any:
        written = real(*args, **kwargs)
        if written:
            reach("after-last-ack")
        return written

    module.write_rows = write_rows


def _wrap_connection(module: Any) -> None:
    """Reach `commit-sent` between EndTxn and its answer."""
    real = module.Connection.request

    def request(self: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        if type(message).__name__ != "EndTxnRequest" or not message.committed:
            return real(self, message, *args, **kwargs)
        self.send(message)
        reach("commit-sent")
        return self.receive()[1]

    module.Connection.request = request


def _wrap_writers(module: Any) -> None:
    real = module.stream_writer

    def stream_writer(*args: Any, **kwargs: Any) -> Any:
        reach("planning")
        return real(*args, **kwargs)

    module.stream_writer = stream_writer
    real_commit = module.ExactlyOnceStreamWriter.commit

    def commit(self: Any, *args: Any, **kwargs: Any) -> None:
        real_commit(self, *args, **kwargs)
        reach("after-commit")

    module.ExactlyOnceStreamWriter.commit = commit


def _wrap_shared(module: Any) -> None:
    real = module.write_batch

    def write_batch(*args: Any, **kwargs: Any) -> Any:
        reach("planning")
        real(*args, **kwargs)
        reach("after-commit")

    module.write_batch = write_batch


def _wrap_catalog(module: Any) -> None:
    """Reach `metadata-written` between a commit's metadata file and the swap in the catalog."""
    real = module.SqlCatalog._write_metadata

    def write_metadata(metadata: Any, *args: Any, **kwargs: Any) -> None:
        real(metadata, *args, **kwargs)
        reach("metadata-written")

    module.SqlCatalog._write_metadata = staticmethod(write_metadata)


def _wrap_after(*points: tuple[str, str]) -> Callable[[ModuleType], None]:
    """Return a wrapper that reaches points after functions of a module."""

    def wrap(module: ModuleType) -> None:
        for name, point in points:
            setattr(module, name, _then(getattr(module, name), point))

    return wrap


def _then(real: Callable[..., Any], point: str) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        reach(point)
        return result

    return wrapped


def _wrap_merge(module: Any) -> None:
    module.BucketMerge.write = _then(module.BucketMerge.write, "latest-written")


def _wrap_deletion(module: Any) -> None:
    module.PyArrowFileIO.delete = _then(module.PyArrowFileIO.delete, "file-deleted")


_WRAPPERS: dict[str, Callable[[ModuleType], None]] = {
    "lakelog.spark.archive.stream": _wrap_stream,
    "lakelog.tables.archive.commit": _wrap_commit,
    "lakelog.tables.archive.dead_letters": _wrap_after(
        ("commit_dead_letters", "letters-committed")
    ),
    "lakelog.tables.upkeep.compaction": _wrap_after(
        ("_write", "compaction-written"),
        ("note_replaced", "compaction-noted"),
        ("exchange", "compaction-exchanged"),
    ),
    "lakelog.tables.compacted.backlog": _wrap_merge,
    "lakelog.tables.compacted.refresh": _wrap_after(
        ("note_replaced", "latest-noted"), ("exchange", "latest-exchanged")
    ),
    "lakelog.tables.iceberg.commits": _wrap_after(("expirable", "expiry-planned")),
    "pyiceberg.catalog.sql": _wrap_catalog,
    "pyiceberg.io.pyarrow": _wrap_deletion,
    "lakelog.client.producer.api": _wrap_sending,
    "lakelog.client.connection": _wrap_connection,
    "lakelog.spark.sink.task": _wrap_task,
    "lakelog.spark.sink.writers": _wrap_writers,
    "lakelog.spark.sink.shared": _wrap_shared,
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
