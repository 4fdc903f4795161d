"""Prints the rows of a table of newest records as DuckDB's Iceberg extension finds them, as JSON.

Runs in an environment without lakelog. Arguments: the table's metadata file, and a key.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg


def main(metadata: str, key: str) -> None:
    with duckdb.connect() as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            assert package.__file__ is not None
            for file in Path(package.__file__).parent.rglob("*.duckdb_extension"):
                connection.load_extension(str(file))
        query = f'SELECT decode("key"), decode("value") FROM iceberg_scan(\'{metadata}\')'
        rows = connection.execute(query).fetchall()
        one = connection.execute(f"{query} WHERE \"key\" = encode('{key}')").fetchall()
    print(json.dumps({"rows": sorted(map(list, rows)), "one": one}))


if __name__ == "__main__":
    main(*sys.argv[1:])
