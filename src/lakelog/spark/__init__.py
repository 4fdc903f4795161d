"""PySpark's side of lakelog: the data source `lakelog`, its sink, and the archive job.

- `source/`: queries that read a topic.
- `sink/`: queries that write to a topic; `write_to` for `foreachBatch`.
- `archive/`: the job behind `lakelog table sync`.
- `session.py`: sessions whose workers find this Python.
- `progress.py`: streaming queries as consumer groups.
- `registry.py`: values that a schema registry describes as typed columns.
- `views.py`: topics as temporary views.
- `demo/`: all of it in one run.

Read `source/readers.py` first; `pyspark_lakelog` is where Spark finds it. What needs no Spark is in
`lakelog.tables`: reading ranges of a topic, and the tables. Spark's workers import this package, so
each public name is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.spark.progress import publish_progress
    from lakelog.spark.registry import from_registry
    from lakelog.spark.sink.shared import write_to
    from lakelog.spark.views import attach

__all__ = ["attach", "from_registry", "publish_progress", "write_to"]

_HOME_OF = {
    "attach": "views",
    "from_registry": "registry",
    "publish_progress": "progress",
    "write_to": "sink.shared",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
