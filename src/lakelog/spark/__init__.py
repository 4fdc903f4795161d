"""PySpark's side of lakelog: the data source `lakelog`, its sink, and the archive job.

- `source/`: queries that read a topic.
- `sink/`: queries that write to a topic; `write_to` for `foreachBatch`.
- `archive/`: the job behind `lakelog table sync`.
- `session.py`: sessions whose workers find this Python.
- `demo/`: all of it in one run.

Read `source/readers.py` first; `pyspark_lakelog` is where Spark finds it. What needs no Spark is in
`lakelog.tables`: reading ranges of a topic, and the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_to"]


def write_to(topic: str | None, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each micro-batch exactly once.

    See `lakelog.spark.sink.shared.write_to`. Raises `OptionError`.
    """
    # Later, because workers that only read import this package.
    from lakelog.spark.sink import shared

    return shared.write_to(topic, options)
