"""Prints facts about a table as Iceberg's own Spark runtime finds them, as JSON.

Runs in an environment without lakelog. Arguments: the folder of the jars, the catalog's file, the
warehouse, the table, and an older snapshot of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_TEXT = """concat_ws(':', partition, offset, coalesce(hex(key), '-'), coalesce(hex(value), '-'),
    unix_millis(timestamp))"""
_SUM = f"sum(cast(conv(substr(sha2({_TEXT}, 256), 1, 15), 16, 10) as decimal(38)))"
_CATALOG = "spark.sql.catalog.lakelog"


def main(jars: str, catalog: str, warehouse: str, name: str, snapshot: str) -> None:
    spark = open_session(jars, catalog, warehouse)
    table = f"lakelog.lakelog.`{name}`"
    older = spark.read.option("versionAsOf", snapshot).table(table)
    found = {
        "now": _facts(spark.table(table)),
        "older": _facts(older),
        "by version": _facts(spark.sql(f"select * from {table} version as of {snapshot}")),
        "partition 1": spark.table(table).where("partition = 1").count(),
        "snapshots": _rows(spark, f"select snapshot_id, operation from {table}.snapshots"),
        "files": _rows(spark, f"select partition, record_count from {table}.files"),
        "letters": _rows(
            spark,
            f"select partition, offset, offsetLast from lakelog.lakelog.`{name}_dead_letters`",
        ),
    }
    print(json.dumps(found))
    spark.stop()


def open_session(jars: str, catalog: str, warehouse: str) -> SparkSession:
    settings = {
        "spark.jars": ",".join(str(path) for path in sorted(Path(jars).glob("*.jar"))),
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_CATALOG}.type": "jdbc",
        f"{_CATALOG}.uri": f"jdbc:sqlite:{catalog}",
        f"{_CATALOG}.warehouse": warehouse,
        # PyIceberg's catalogs have the column of the second form.
        f"{_CATALOG}.jdbc.schema-version": "V1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _facts(rows: DataFrame) -> list[int]:
    """Return the number of rows, of different offsets, and the sum of the rows' hashes."""
    found = rows.selectExpr("count(*)", "count(distinct partition, offset)", _SUM).first()
    assert found is not None
    return [int(each) for each in found]


def _rows(spark: SparkSession, query: str) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in spark.sql(query).collect()]


if __name__ == "__main__":
    main(*sys.argv[1:])
