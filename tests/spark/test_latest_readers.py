"""Tables of newest records read by programs of other projects, in an environment of their own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from pyiceberg.catalog import load_catalog

from kafka_jars import class_path
from lakelog.cli.main import run
from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from spark.archiver import Archiver
from spark.test_readers import read

pytestmark = [pytest.mark.spark, pytest.mark.readers]

KEY = "k7"
BUCKETS = 5


class Newest(NamedTuple):
    """The table's name, its catalog, and the rows that it must have."""

    name: str
    catalog: dict[str, str]
    rows: list[list[str]]

    @property
    def one(self) -> list[list[str]]:
        return [row for row in self.rows if row[0] == KEY]


@pytest.fixture(scope="module")
def newest(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Newest:
    """After five refreshes with tombstones."""
    folder = tmp_path_factory.mktemp("newest")
    topic, draw = f"newest-{folder.name}", random.Random(3)
    keys = {"table.enable": "true", "table.latest": "true", "table.latest.buckets": str(BUCKETS)}
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=3, configs=keys)
    archiver = Archiver(bootstrap, topic, folder)
    values: dict[str, str | None] = {}
    for number in range(5):
        with Producer(bootstrap) as producer:
            for at in range(100):
                key = f"k{draw.randrange(50)}"
                is_dead = key != KEY and draw.random() < 0.3
                values[key] = None if is_dead else f"{number}-{at}"
                producer.send(
                    topic, None if is_dead else f"{number}-{at}".encode(), key=key.encode()
                )
        archiver.run()
        assert run(["table", "refresh", topic, "-b", bootstrap]) == 0
    rows = [[key, value] for key, value in sorted(values.items()) if value is not None]
    return Newest(f"{topic}_latest", archiver.place.catalog, rows)


@pytest.fixture
def python(pytestconfig: pytest.Config) -> str:
    """The interpreter of the readers' environment."""
    return str(Path(pytestconfig.getoption("--readers")).absolute())


def test_spark_with_icebergs_runtime_reads_the_newest_records(newest: Newest, python: str) -> None:
    found = read(
        python,
        "newest_spark.py",
        class_path("iceberg").removesuffix("/*"),
        newest.catalog["uri"].removeprefix("sqlite:///"),
        newest.catalog["warehouse"],
        newest.name,
        KEY,
    )
    assert found["rows"] == newest.rows
    assert found["one"] == newest.one
    assert len(newest.one) == 1
    assert found["buckets"] == list(range(BUCKETS)), "one file for each bucket"
    assert found["delete files"] == 0


def test_duckdb_reads_the_newest_records(newest: Newest, python: str) -> None:
    table = load_catalog("lakelog", **newest.catalog).load_table(("lakelog", newest.name))
    metadata = table.metadata_location.removeprefix("file://")
    found = read(python, "newest_duckdb.py", metadata, KEY)
    assert found["rows"] == newest.rows
    assert found["one"] == newest.one
