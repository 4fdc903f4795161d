"""Scripts that read an archived table, for users to copy.

PyIceberg's scan returns a null list of structs, such as the headers of a record without any, as an
empty list. The scripts therefore ask PyIceberg for the files, and read these with PyArrow.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.tables.iceberg.warehouse import is_remote


def snippets(
    metadata_path: str, catalog: Mapping[str, str], identifier: tuple[str, str]
) -> dict[str, str]:
    """Return a Python script for each reader: `duckdb`, `pyiceberg` and `spark`.

    No script needs a jar. There is none for DuckDB if the table is remote, because DuckDB needs
    credentials of its own. Raises `ValueError` for an unknown scheme of `metadata_path`.
    """
    load = (
        "from pyiceberg.catalog import load_catalog\n"
        f"catalog = load_catalog('lakelog', **{dict(catalog)!r})\n"
        f"table = catalog.load_table({identifier!r})\n"
    )
    scripts = {
        "pyiceberg": load + _FILES.format(files="files[:1]") + "print(rows.slice(0, 10))",
        "spark": _SPARK_HEAD + load + _SPARK_REMOTE,
    }
    if is_remote(metadata_path):
        return scripts
    scripts["spark"] = _SPARK_HEAD + load + _SPARK_LOCAL
    return {"duckdb": _duckdb(metadata_path), **scripts}


_SPARK_HEAD = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
_SPARK_LOCAL = (
    "from pyspark.sql.pandas.types import from_arrow_schema\n"
    "columns = from_arrow_schema(table.schema().as_arrow())\n"
    "files = [task.file.file_path for task in table.scan().plan_files()]\n"
    "rows = spark.read.schema(columns).parquet(*files)\n"
    "rows.groupBy('partition').count().show()"
)
_FILES = (
    "# table.scan().to_arrow() would turn null headers into empty lists.\n"
    "import pyarrow as pa, pyarrow.parquet as pq\n"
    "files = [table.io.new_input(task.file.file_path) for task in table.scan().plan_files()]\n"
    "parts = [pq.read_table(file.open()) for file in {files}]\n"
    "none = table.schema().as_arrow().empty_table()\n"
    "rows = pa.concat_tables([none, *parts], promote_options='permissive')\n"
)
_SPARK_REMOTE = (
    _FILES.format(files="files") + "rows = spark.createDataFrame(rows)\n"
    "rows.groupBy('partition').count().show()"
)


def _duckdb(metadata_path: str) -> str:
    path = metadata_path.removeprefix("file://")
    query = (
        f"SELECT partition, count(*) FROM iceberg_scan('{path}') GROUP BY partition ORDER BY ALL"
    )
    return (
        "import duckdb  # downloads its iceberg extension the first time\n"
        "duckdb.sql('INSTALL iceberg')\n"
        "duckdb.sql('LOAD iceberg')\n"
        f'duckdb.sql("{query}").show()'
    )
