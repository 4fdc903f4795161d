"""Errors with advice, which Spark shows without the frames of this package.

Spark plans each query in a process of its own, which ends with the error. PySpark's worker sends
its text to the driver, with a traceback unless the process has an environment variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lakelog.base.errors import KafkaError
from lakelog.tables.topic.errors import ArchiveUnreadableError, DataLossError, OptionError

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
