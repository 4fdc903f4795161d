"""Archived tables read by programs of other projects, in an environment of their own.

They have no lakelog and no PyIceberg: Spark with Iceberg's runtime jar, and DuckDB's extension.
`make readers` makes the environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
import pytest
from pyiceberg.catalog import load_catalog

from kafka_jars import class_path
from lakelog.cli.main import run
from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from lakelog.spark.archive.sync import SyncResult, sync_topic
from spark.topics import START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.readers]

TIMEOUT_S = 1200.0
_PROGRAMS = Path(__file__).parent / "readers"
PARTITIONS = 3
IMPOSSIBLE_MS = 2**62
BAD = (7, 40, 95)
"""Records with an impossible timestamp, which are dead letters."""


class Facts(NamedTuple):
    """The number of records, of different places, and the sum of the records' hashes."""

    rows: int
    places: int
    hashes: int


class Archived(NamedTuple):
    """A table; and its facts now and in the older snapshot, as a consumer of the topic has them."""

    result: SyncResult
    now: Facts
    older: Facts
    older_snapshot: int
    dead_letters: list[tuple[int, int]]


@pytest.fixture(scope="module")
def archived(
    spark: SparkSession, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Archived:
    """The table of a topic after many small commits, a compaction, and one more commit."""
    folder = tmp_path_factory.mktemp("readers")
    topic = f"readers-{folder.name}"
    keys = {
        "retention.ms": "-1",
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "table.enable": "true",
        "table.errors": "dead-letter",
        "table.partition_by": "partition",
    }
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=PARTITIONS, configs=keys)
    warehouse = str(folder / "warehouse")
    _send(bootstrap, topic, range(90))
    first = sync_topic(bootstrap, topic, warehouse, spark=spark, batch_bytes=4500)
    older, _ = _consumed(bootstrap, topic)
    assert run(["table", "compact", topic, "--min-files", "2", "-b", bootstrap]) == 0
    _send(bootstrap, topic, range(90, 120))
    last = sync_topic(bootstrap, topic, warehouse, spark=spark)
    now, dead_letters = _consumed(bootstrap, topic)
    assert (older.rows, now.rows, len(dead_letters)) == (88, 117, len(BAD))
    assert first.snapshot_id is not None
    return Archived(last, now, older, first.snapshot_id, dead_letters)


def _send(bootstrap: str, topic: str, numbers: range) -> None:
    with Producer(bootstrap) as producer:
        for number in numbers:
            draw = random.Random(number)
            producer.send(
                topic,
                draw.randbytes(draw.randrange(200)) if number % 9 else None,
                b"k%d" % number if number % 5 else None,
                partition=number % PARTITIONS,
                timestamp_ms=IMPOSSIBLE_MS if number in BAD else START_MS + number,
            )


def _consumed(bootstrap: str, topic: str) -> tuple[Facts, list[tuple[int, int]]]:
    """Return the facts of all records that can be rows, and the places of the others."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(settings)
    texts: dict[tuple[int, int], str] = {}
    dead_letters: list[tuple[int, int]] = []
    ended = 0
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        )
        while ended < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, "no response"
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended += 1
                continue
            position = (int(message.partition() or 0), int(message.offset() or 0))
            time_ms = message.timestamp()[1]
            if time_ms == IMPOSSIBLE_MS:
                dead_letters.append(position)
                continue
            parts = (*position, _hex(message.key()), _hex(message.value()), time_ms)
            texts[position] = ":".join(map(str, parts))
    finally:
        consumer.close()
    hashes = (int(hashlib.sha256(text.encode()).hexdigest()[:15], 16) for text in texts.values())
    return Facts(len(texts), len(texts), sum(hashes)), sorted(dead_letters)


def _hex(data: bytes | str | None) -> str:
    assert not isinstance(data, str)
    return "-" if data is None else data.hex().upper()


def read(python: str, program: str, *arguments: str) -> Any:
    """Return the JSON that a program of the other environment prints."""
    others = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    done = subprocess.run(
        [python, str(_PROGRAMS / program), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={name: value for name, value in os.environ.items() if name not in others},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.fixture
def python(pytestconfig: pytest.Config) -> str:
    """The interpreter of the readers' environment."""
    return str(Path(pytestconfig.getoption("--readers")).absolute())


def test_spark_with_icebergs_runtime_reads_the_same_as_a_consumer(
    archived: Archived, python: str
) -> None:
    catalog = archived.result.catalog
    found = read(
        python,
        "iceberg_spark.py",
        class_path("iceberg").removesuffix("/*"),
        catalog["uri"].removeprefix("sqlite:///"),
        catalog["warehouse"],
        archived.result.table[-1],
        str(archived.older_snapshot),
    )
    assert Facts(*found["now"]) == archived.now
    assert Facts(*found["older"]) == archived.older
    assert found["by version"] == found["older"]
    table = load_catalog("lakelog", **catalog).load_table(archived.result.table)
    assert {row["snapshot_id"] for row in found["snapshots"]} == {
        each.snapshot_id for each in table.metadata.snapshots
    }
    assert {row["operation"] for row in found["snapshots"]} == {"append", "overwrite"}
    assert sum(row["record_count"] for row in found["files"]) == archived.now.rows
    by_partition = sum(
        row["record_count"] for row in found["files"] if list(row["partition"].values()) == [1]
    )
    assert found["partition 1"] == by_partition > 0
    dead_letters = [(row["partition"], row["offset"]) for row in found["letters"]]
    assert sorted(dead_letters) == archived.dead_letters


def test_duckdb_reads_the_same_as_a_consumer(archived: Archived, python: str) -> None:
    table = load_catalog("lakelog", **archived.result.catalog).load_table(archived.result.table)
    metadata = table.metadata_location.removeprefix("file://")
    found = read(python, "duckdb_iceberg.py", metadata, str(archived.older_snapshot))
    assert Facts(*found["now"]) == archived.now
    assert Facts(*found["older"]) == archived.older
