"""Ready commands to read an archived table, for people to copy."""

from __future__ import annotations

from collections.abc import Mapping


def snippets(
    metadata_path: str, catalog: Mapping[str, str], identifier: tuple[str, str]
) -> dict[str, str]:
    """Reader to text that reads the table with it. Keys: duckdb, pyiceberg, spark."""
    namespace, name = identifier
    return {
        "duckdb": _duckdb(metadata_path),
        "pyiceberg": _pyiceberg(catalog, identifier),
        "spark": _spark(catalog, f"lakelog.{namespace}.`{name}`"),
    }


def _duckdb(metadata_path: str) -> str:
    path = metadata_path.removeprefix("file://")
    return (
        'duckdb -c "INSTALL iceberg; LOAD iceberg; '
        f"SELECT partition, count(*) FROM iceberg_scan('{path}') GROUP BY ALL ORDER BY ALL\""
    )


def _pyiceberg(catalog: Mapping[str, str], identifier: tuple[str, str]) -> str:
    settings = ", ".join(f"{name}={value!r}" for name, value in catalog.items())
    return (
        "from pyiceberg.catalog import load_catalog\n"
        f"table = load_catalog('lakelog', {settings}).load_table({identifier!r})\n"
        "print(table.scan(limit=10).to_arrow())"
    )


def _spark(catalog: Mapping[str, str], table: str) -> str:
    """Iceberg's own runtime exists up to Spark 4.1."""
    settings = {
        "spark.sql.catalog.lakelog": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lakelog.type": "jdbc",
        "spark.sql.catalog.lakelog.uri": catalog["uri"].replace("sqlite:///", "jdbc:sqlite:"),
        "spark.sql.catalog.lakelog.warehouse": catalog["warehouse"],
    }
    packages = (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.50.3.0"
    )
    flags = " \\\n".join(f"  --conf {name}={value}" for name, value in settings.items())
    return (
        f"spark-sql --packages {packages} \\\n{flags} \\\n"
        f"  -e 'SELECT partition, count(*) FROM {table} GROUP BY ALL'  # Spark 4.1"
    )
