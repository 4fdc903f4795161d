"""The Python processes of Spark: workers, and the process that plans a query.

Spark plans each query in a process of its own, which ends with the error. PySpark's worker sends
its text to the driver, with a traceback unless the process has an environment variable. Errors with
advice are shown without the frames of this package. Workers collect garbage after each task.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.base.errors import KafkaError
from lakelog.tables.topic.errors import ArchiveUnreadableError, DataLossError, OptionError

_WORKER = "pyspark.daemon"
"""The program of the processes that collect garbage after each task."""


def is_worker() -> bool:
    """Return whether this process runs one task after another."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _WORKER


class _Exempted:
    """The number of modules that were loaded when objects were last exempted."""

    modules = 0


def exempt_modules() -> None:
    """Exempt the objects of all loaded modules from garbage collection, in a worker.

    Otherwise the collection after each task looks at every object of Numba and pyarrow, which takes
    as long as decoding a million records. Only the first task after an import has work to do here.
    """
    if not is_worker() or len(sys.modules) == _Exempted.modules:
        return
    gc.collect()
    gc.freeze()
    _Exempted.modules = len(sys.modules)


_EXPECTED = OptionError, KafkaError, DataLossError, ArchiveUnreadableError
_HIDE = "SPARK_HIDE_TRACEBACK"
"""The variable of PySpark's `handle_worker_exception`."""


@contextmanager
def without_traceback() -> Iterator[None]:
    """Have PySpark show the text of an expected error alone; other errors keep their traceback.

    For the functions that Spark calls to plan a query.
    """
    try:
        yield
    except _EXPECTED:
        os.environ[_HIDE] = "1"
        raise
