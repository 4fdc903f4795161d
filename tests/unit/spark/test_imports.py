"""The imports of Spark's workers before their first record: there are many workers."""

from __future__ import annotations

import subprocess
import sys

_FOUND_BY_SPARK = """
import sys
import pyspark.sql.datasource
before = set(sys.modules)
import pyspark_lakelog
print(*(set(sys.modules) - before))
"""
_COLUMNS = """
import sys
from lakelog.spark.source.readers import schema_of
schema_of({"kafka.bootstrap.servers": "b:9", "subscribe": "t"})
print(*sys.modules)
"""
_IMPORT = """
import sys
import lakelog.spark.source.batch
import lakelog.spark.source.stream
print("pyarrow.parquet" if "pyarrow.parquet" in sys.modules else "")
import lakelog.spark.archive.stream
print(*sys.modules)
"""
_NOT_FOR_READERS = (
    *("numba", "pyiceberg", "sqlalchemy", "argparse", "rich"),
    *("lakelog.client.producer", "lakelog.client.admin", "lakelog.client.consumer.group"),
    *("lakelog.columns.decoding.compiled", "lakelog.server", "lakelog.assignors", "lakelog.cli"),
)


def test_the_module_that_spark_imports_for_every_session_needs_pyspark_alone() -> None:
    """Spark imports it for unknown formats; a failure would disable all Python data sources."""
    done = subprocess.run(
        [sys.executable, "-c", _FOUND_BY_SPARK], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded - {"pyspark_lakelog", "pyspark"} <= sys.stdlib_module_names
    assert "pyspark_lakelog" in loaded


def test_a_worker_that_reads_imports_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("\n"), "files are for tasks that read a table"
    loaded = set(done.stdout.split())
    assert "lakelog.client.consumer.reader" in loaded
    assert loaded.isdisjoint(_NOT_FOR_READERS)


def test_a_process_that_names_the_columns_imports_no_reader() -> None:
    """Spark starts one for each query."""
    done = subprocess.run(
        [sys.executable, "-c", _COLUMNS], capture_output=True, text=True, check=True
    )
    readers = {"lakelog.spark.source.batch", "lakelog.spark.source.stream", "lakelog.tables.hybrid"}
    assert {*readers, "pyarrow"}.isdisjoint(done.stdout.split())
