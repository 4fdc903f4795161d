"""An engine that runs the archive's query without Java, in a thread of this process.

It calls the source and the sink that Spark would call (`lakelog.spark.archive.stream`), in the same
order, one task after the other. Offsets go through JSON, and tasks and their results through
pickle, as between Spark's processes. Tests of the archive's decisions use it; tests of what Spark
does with the query have a session.
"""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lakelog.spark.archive import sync
from lakelog.spark.archive.engine import QueryFailedError
from lakelog.spark.archive.stream import Archived, ArchiveWriter, RangeReader
from lakelog.tables.archive.progress import ArchiveJob

_one_task = threading.Lock()
"""The context of the task that runs is an attribute of a class."""


class PlainEngine:
    """Runs queries as `lakelog.spark.archive.engine.Engine` describes. `tasks` as with local[2]."""

    tasks = 2

    def __init__(self, open_session: object, checkpoints: object) -> None:
        """Ignore what only Spark needs."""

    def start(self, job: ArchiveJob, every_s: float | None) -> PlainQuery:
        return PlainQuery(ArchiveJob.from_json(job.to_json()), every_s)

    def close(self) -> None:
        """Nothing is open."""


class PlainQuery:
    """The query of a job, in a thread of its own."""

    def __init__(self, job: ArchiveJob, every_s: float | None) -> None:
        self._reader, self._writer = RangeReader(job), ArchiveWriter(job)
        self._every_s = every_s
        self._id = str(uuid.uuid4())
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        if self._error is not None:
            raise QueryFailedError(f"{type(self._error).__name__}: {self._error}")
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._run_batches()
        except Exception as error:  # noqa: BLE001 - the caller of `wait` gets it
            self._error = error
        finally:
            self._reader.stop()

    def _run_batches(self) -> None:
        offset = self._reader.initialOffset()
        if self._every_s is None:
            self._reader.prepareForTriggerAvailableNow()
        number = 0
        while not self._stopped.is_set():
            end = self._reader.latestOffset(as_json(offset), ReadAllAvailable())
            if as_json(end) != as_json(offset):
                self._run_batch(as_json(offset), as_json(end), number)
                self._reader.commit(end)
                offset, number = end, number + 1
            elif self._every_s is None:
                return
            self._stopped.wait(self._every_s or 0)

    def _run_batch(self, start: Any, end: Any, number: int) -> None:
        tasks = self._reader.partitions(start, end)
        done: list[Archived | None] = [None] * len(tasks)
        try:
            for task_index, task in enumerate(tasks):
                with _one_task, self._context(task_index, number):
                    done[task_index] = copied(self._writer.write(self._reader.read(copied(task))))
            self._writer.commit(done, number)
        except Exception:
            self._writer.abort(done, number)
            raise

    @contextmanager
    def _context(self, task: int, batch: int) -> Iterator[None]:
        properties = {"sql.streaming.queryId": self._id, "streaming.sql.batchId": str(batch)}
        TaskContext._setTaskContext(TaskContext(partitionId=task, localProperties=properties))
        try:
            yield
        finally:
            TaskContext._setTaskContext(None)


def as_json(offset: Any) -> Any:
    """Return the offset as it would come back from a checkpoint."""
    return json.loads(json.dumps(offset))


def copied(message: Any) -> Any:
    """Return the message as another process would get it."""
    return pickle.loads(pickle.dumps(message))


@contextmanager
def plain_engine() -> Iterator[None]:
    """Have `sync_topic` use this engine, and no Java, in this process."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sync, "SparkEngine", PlainEngine)
        monkeypatch.setattr(sync, "require_java", lambda: None)
        yield
