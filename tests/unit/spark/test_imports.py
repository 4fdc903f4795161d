"""The imports of Spark's workers before their first record: there are many workers."""

from __future__ import annotations

import subprocess
import sys

_IMPORT = """
import sys
import lakelog.spark.source.readers
import lakelog.spark.archive.stream
print(*(name for name in sys.modules))
"""
_NOT_FOR_READERS = (
    *("numba", "pyiceberg", "sqlalchemy", "cyclopts", "rich"),
    *("lakelog.client.producer", "lakelog.client.admin", "lakelog.client.consumer.group"),
    *("lakelog.columns.decoding.compiled", "lakelog.server", "lakelog.assignors", "lakelog.cli"),
)


def test_a_worker_that_reads_imports_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "lakelog.client.consumer.reader" in loaded
    assert loaded.isdisjoint(_NOT_FOR_READERS)
