from __future__ import annotations

import subprocess

from lakelog.spark.archive.snippets import snippets

CATALOG = {"type": "sql", "uri": "sqlite:////srv/lake/catalog.db", "warehouse": "file:///srv/lake"}
TEXTS = snippets("file:///srv/lake/lakelog/a.b-c/metadata/1.json", CATALOG, ("lakelog", "a.b-c"))


def arguments(program: str) -> list[str]:
    """What a shell hands to `program`, whose command line this is."""
    script = f"{program}() {{ printf '%s\\n' \"$@\"; }}\n{TEXTS[program.split('-')[0]]}"
    shell = subprocess.run(
        ["sh", "-c", script.replace("spark-sql", "spark_sql")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stderr == ""
    return shell.stdout.splitlines()


def test_a_shell_hands_the_query_to_spark_as_it_is() -> None:
    assert arguments("spark-sql")[-2:] == [
        "-e",
        "SELECT partition, count(*) FROM lakelog.lakelog.`a.b-c` GROUP BY ALL",
    ]
    assert "spark.sql.catalog.lakelog.uri=jdbc:sqlite:/srv/lake/catalog.db" in arguments(
        "spark-sql"
    )


def test_a_shell_hands_the_query_to_duckdb_as_it_is() -> None:
    assert arguments("duckdb")[1].endswith(
        "iceberg_scan('/srv/lake/lakelog/a.b-c/metadata/1.json') GROUP BY ALL ORDER BY ALL"
    )
