"""Prints the rows of a table of newest records as Iceberg's Spark runtime finds them, as JSON.

Runs in an environment without lakelog. Arguments: the folder of the jars, the catalog's file, the
warehouse, the table, and a key.
"""

from __future__ import annotations

import json
import sys

from iceberg_spark import open_session  # type: ignore[import-not-found] # beside this file


def main(jars: str, catalog: str, warehouse: str, name: str, key: str) -> None:
    spark = open_session(jars, catalog, warehouse)
    table = f"lakelog.lakelog.`{name}`"
    query = f"select cast(key as string), cast(value as string) from {table}"
    found = {
        "rows": sorted([row[0], row[1]] for row in spark.sql(query).collect()),
        "one": [
            list(row) for row in spark.sql(f"{query} where key = cast('{key}' as binary)").collect()
        ],
        "buckets": sorted(
            row[0] for row in spark.sql(f"select partition.key_bucket from {table}.files").collect()
        ),
        "delete files": spark.sql(f"select * from {table}.delete_files").count(),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
