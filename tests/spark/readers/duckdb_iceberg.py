"""Prints facts about a table as DuckDB's Iceberg extension finds them, as JSON.

Runs in an environment without lakelog. Arguments: the table's metadata file, and an older snapshot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg

_TEXT = """concat_ws(':', partition, "offset", coalesce(hex("key"), '-'),
    coalesce(hex("value"), '-'), epoch_ms("timestamp"))"""
_SUM = f"sum(('0x' || substr(sha256({_TEXT}), 1, 15))::UBIGINT)"
_FACTS = f'count(*), count(DISTINCT (partition, "offset")), {_SUM}'


def main(metadata: str, snapshot: str) -> None:
    with duckdb.connect() as connection:
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            assert package.__file__ is not None
            for file in Path(package.__file__).parent.rglob("*.duckdb_extension"):
                connection.load_extension(str(file))
        found = {}
        for name, option in (("now", ""), ("older", f", snapshot_from_id = {snapshot}")):
            query = f"SELECT {_FACTS} FROM iceberg_scan('{metadata}'{option})"
            row = connection.execute(query).fetchone()
            assert row is not None
            found[name] = [int(each) for each in row]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
