"""The text of the scripts. Tests in tests/spark run them."""

from __future__ import annotations

import ast

import pytest

from lakelog.tables.iceberg.snippets import snippets

CATALOG = {"type": "sql", "uri": "sqlite:////srv/lake/catalog.db", "warehouse": "file:///srv/lake"}
PLACES = ["file:///srv/lake/lakelog/a.b-c/metadata/1.json", "s3://lake/lakelog/a/metadata/1.json"]


@pytest.mark.parametrize("metadata_path", PLACES)
def test_every_script_is_python(metadata_path: str) -> None:
    for text in snippets(metadata_path, CATALOG, ("lakelog", "a.b-c")).values():
        ast.parse(text)


def test_duckdb_has_no_script_for_a_warehouse_without_credentials() -> None:
    here, elsewhere = (snippets(path, CATALOG, ("lakelog", "a")) for path in PLACES)
    assert list(here) == ["duckdb", "pyiceberg", "spark"]
    assert list(elsewhere) == ["pyiceberg", "spark"]
    assert here["spark"] != elsewhere["spark"]
