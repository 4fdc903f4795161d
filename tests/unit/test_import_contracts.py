"""Each import contract of pyproject.toml holds, and breaks when it is violated.

The violations are planted together in a copy of the source, which is analysed once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

pytestmark = [pytest.mark.xdist_group("trees")]
"""In one process, which then analyses the source once."""

_PROJECT = Path(__file__).parents[2]
_PACKAGES = ("lakelog", "pyspark_lakelog", "pytest_lakelog")
_COMMAND = (sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()")
_RESULT = re.compile(r"^(?P<contract>.+) (?P<result>KEPT|BROKEN)(?: \(.*\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Planted:
    """An import that breaks `contract`, in a module that is created if it does not exist."""

    contract: str
    importer: str
    imported: str


_LAYERS = "A lower layer never imports a higher one"
_LOADED = "Nothing imports the packages that Spark and pytest load"
_COORDINATOR = "A coordinator reaches logs and metadata through its own interfaces only"
_HANDLERS = "Handlers do not import each other"
_SQLITE = "SQLite is used by the embedded metadata store only"
_KAZOO = "kazoo is used by metadata stores only"
_FRAMES = "Columns are Arrow's: pandas and polars are imported by name, on demand"
_CODECS = "Codecs and checksums are used by records only"
_NUMBA = "Numba and NumPy are used by compiled columns only"
_ARROW = "PyArrow is used by columns, the client, the table engine and Spark jobs only"
_FASTAVRO = "fastavro is used by schemas of a registry only"
_PYSPARK = "PySpark is used by Spark jobs and by the module that Spark loads only"
_ICEBERG = "PyIceberg and SQLAlchemy are used by the table engine and by the demo only"
_RICH = "Rich is used by commands and by the demo only"
_OTHERS = "Other programs' clients are used by the demos only"

_PLANTED = [
    Planted(_LAYERS, "lakelog.wire.planted_upward", "lakelog.protocol.produce"),
    Planted(_LAYERS, "lakelog.storage.planted_sideways", "lakelog.metadata.image"),
    Planted(_LAYERS, "lakelog.network_client", "lakelog.client.errors"),
    Planted(_LAYERS, "lakelog.network_client", "lakelog.metadata.image"),
    Planted(_LAYERS, "lakelog.server.planted_sideways", "lakelog.client.connection"),
    Planted(_LAYERS, "lakelog.tables.planted_job", "lakelog.spark.session"),
    Planted(_LAYERS, "lakelog.protocol.planted_sideways", "lakelog.records.batch"),
    Planted(_LAYERS, "lakelog.base.planted_upward", "lakelog.runtime.api"),
    Planted(_LOADED, "lakelog.spark.planted_top", "pyspark_lakelog"),
    Planted(_LOADED, "lakelog.testing.planted_top", "pytest_lakelog"),
    Planted(_COORDINATOR, "lakelog.coordinator.planted_log", "lakelog.storage.log"),
    Planted(_COORDINATOR, "lakelog.coordinator.planted_image", "lakelog.metadata.image"),
    Planted(_HANDLERS, "lakelog.server.handlers.produce", "lakelog.server.handlers.fetch"),
    Planted(_SQLITE, "lakelog.storage.planted_sqlite", "sqlite3"),
    Planted(_KAZOO, "lakelog.metadata.planted_kazoo", "kazoo.client"),
    Planted(_FRAMES, "lakelog.client.planted_frames", "pandas"),
    Planted(_FRAMES, "lakelog.spark.planted_frames", "polars"),
    Planted(_CODECS, "lakelog.storage.planted_codec", "cramjam"),
    Planted(_CODECS, "lakelog.client.planted_checksum", "crc32c"),
    Planted(_NUMBA, "lakelog.records.planted_loop", "numba"),
    Planted(_NUMBA, "lakelog.spark.planted_array", "numpy"),
    Planted(_ARROW, "lakelog.storage.planted_arrow", "pyarrow"),
    Planted(_FASTAVRO, "lakelog.tables.typed.planted_avro", "fastavro"),
    Planted(_PYSPARK, "lakelog.cli.planted_spark", "pyspark.sql"),
    Planted(_PYSPARK, "lakelog.tables.planted_spark", "pyspark.sql"),
    Planted(_ICEBERG, "lakelog.spark.planted_iceberg", "pyiceberg.table"),
    Planted(_ICEBERG, "lakelog.spark.planted_catalog", "sqlalchemy.exc"),
    Planted(_RICH, "lakelog.server.planted_color", "rich.console"),
    Planted(_OTHERS, "lakelog.testing.planted_client", "confluent_kafka"),
    Planted(_OTHERS, "lakelog.spark.archive.planted_query", "duckdb"),
]
_NEW_PACKAGE = "lakelog.planted_package"


def _lint(source: Path, *options: str, folder: Path) -> tuple[dict[str, str], str]:
    """Return the result of each contract for the packages in the folder `source`, and the text.

    folder: the working directory, where `lint-imports` keeps its cache.
    """
    finished = subprocess.run(
        [*_COMMAND, *options, "--no-logo", "--config", str(_PROJECT / "pyproject.toml")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(source), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {each["contract"]: each["result"] for each in _RESULT.finditer(finished.stdout)}
    assert finished.returncode == (1 if "BROKEN" in found.values() else 0), finished.stderr
    return found, finished.stdout


def _contracts() -> list[str]:
    settings = tomllib.loads((_PROJECT / "pyproject.toml").read_text())
    return [each["name"] for each in settings["tool"]["importlinter"]["contracts"]]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], str]:
    """Results and text for a copy of the source with all the violations."""
    source = tmp_path_factory.mktemp("planted")
    for package in _PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_PROJECT / "src" / package, source / package, ignore=ignored)
    for planted in _PLANTED:
        path = source.joinpath(*planted.importer.split(".")).with_suffix(".py")
        with path.open("a") as file:
            file.write(f"\nimport {planted.imported}\n")
    room = source.joinpath(*_NEW_PACKAGE.split("."))
    room.mkdir()
    (room / "__init__.py").touch()
    return _lint(source, "--no-cache", folder=source)


@cache
def _kept() -> dict[str, str]:
    return _lint(_PROJECT / "src", folder=_PROJECT)[0]


def test_every_contract_holds() -> None:
    assert _kept() == dict.fromkeys(_contracts(), "KEPT")


def test_every_contract_has_a_violation_that_breaks_it(
    broken: tuple[dict[str, str], str],
) -> None:
    assert {planted.contract for planted in _PLANTED} == set(_contracts())
    assert broken[0] == dict.fromkeys(_contracts(), "BROKEN")


@pytest.mark.parametrize("planted", _PLANTED, ids=lambda each: f"{each.importer}-{each.imported}")
def test_a_planted_import_is_reported(planted: Planted, broken: tuple[dict[str, str], str]) -> None:
    library = planted.imported.partition(".")[0]
    imported = planted.imported if library in _PACKAGES else library
    section = re.search(
        rf"^{re.escape(planted.contract)}\n-+\n(.*?)(?=^[^\n]+\n-+\n|\Z)",
        broken[1],
        re.MULTILINE | re.DOTALL,
    )
    assert section is not None
    assert f"{planted.importer} -> {imported} " in section[1]


def test_a_package_without_a_layer_is_reported(broken: tuple[dict[str, str], str]) -> None:
    assert f"- {_NEW_PACKAGE}\n" in broken[1]
