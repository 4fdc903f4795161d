"""`lakelog table` against a broker, without Spark: all commands but `sync`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakelog.cli.main import run
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.producer import Producer
from spark.archiver import Archiver
from spark.scripts import run_script
from spark.sources import BatchQuery
from spark.topics import START_MS, MakeTopic, produce

pytestmark = [pytest.mark.spark]


class Shell:
    """Runs commands in this process, with JSON results."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> Any:
        found = run(["table", *words, "-b", self._bootstrap, "-f", "json"])
        out, err = self._capsys.readouterr()
        assert found == status, err
        return json.loads(out) if not status else err


@pytest.fixture
def shell(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(bootstrap, capsys)


def _refuse(*_: object) -> NoReturn:
    raise PermissionError("the catalog refuses")


def test_a_table_from_its_creation_to_its_end(
    shell: Shell,
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(30)
    (created,) = shell("create", topic, "--warehouse", str(tmp_path))
    assert created["table"] == f"lakelog.{topic}"
    (empty,) = shell("describe", topic)
    assert (empty["rows"], empty["lag"]) == (0, 30)
    archiver = Archiver(bootstrap, topic, tmp_path)
    for number in range(1, 6):
        archiver.run()
        produce(bootstrap, topic, range(number * 30, number * 30 + 30))

    (listed,) = [row for row in shell("list") if row["topic"] == topic]
    assert (listed["archived"], listed["lag"]) == (150, 30)
    (shown,) = shell("describe", topic)
    assert (shown["rows"], shown["lag"], shown["small_files"]) == (150, 30, shown["files"])
    (audited,) = shell("audit", topic)
    assert (audited["sound"], audited["rows"], audited["total_records"]) == (True, 150, 150)
    assert [row["compared"] for row in audited["partitions"]] == [50, 50, 50]

    (compacted,) = shell("compact", topic, "--min-files", "2")
    assert (compacted["files_before"], compacted["files_after"]) == (shown["files"], 1)
    assert compacted["rows"] == 150
    archiver.run()
    (expired,) = shell("expire", topic, "--keep", "1", "--grace", "0s")
    assert expired["files_removed"] == compacted["files_before"]
    (audited,) = shell("audit", topic)
    assert (audited["sound"], audited["rows"]) == (True, 180)
    assert len(BatchQuery(bootstrap, topic).run()) == 180

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "rename_table", _refuse)
        failed = shell("drop", topic, "--purge", "--yes", status=1)
    assert f"run `lakelog table drop {topic} --purge` again to complete it" in failed
    (left,) = shell("describe", topic)
    assert left["rows"] == 180, "the catalog has kept the table"
    (dropped,) = shell("drop", topic, "--purge", "--yes")
    assert dropped["files_deleted"] > 2
    assert "[LL0804]" in shell("drop", topic, "--yes", status=3)
    assert not list(tmp_path.rglob("*.parquet"))
    assert "[LL0804]" in shell("describe", topic, status=3)
    assert len(BatchQuery(bootstrap, topic).run()) == 180, "the log has all records still"
    with Admin(bootstrap) as admin:
        values = admin.configs.describe(ResourceType.TOPIC, topic, keys=("table.enable",))
    assert values["table.enable"].value == "false"


def test_a_table_of_a_sync_is_found_by_each_command(
    shell: Shell, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """By the topic's keys, and by the options of the sync when the keys were reset."""
    topic = make_topic(30)
    Archiver(bootstrap, topic, tmp_path).run()
    for options in ((), ("--warehouse", str(tmp_path), "--name", topic)):
        if options:
            keys = dict.fromkeys(("table.warehouse", "table.name"))
            with Admin(bootstrap) as admin:
                admin.configs.alter(ResourceType.TOPIC, topic, keys)
            assert "add --warehouse FOLDER" in shell("describe", topic, status=3)
        (listed,) = [row for row in shell("list", *options[:2]) if row["topic"] == topic]
        assert (listed["archived"], listed["lag"], listed["enabled"]) == (30, 0, False)
        assert shell("describe", topic, *options)[0]["rows"] == 30
        assert shell("audit", topic, *options)[0]["sound"] is True
        assert shell("compact", topic, *options)[0]["topic"] == topic
        assert shell("expire", topic, *options)[0]["files_removed"] == 0
    failed = shell("drop", topic, "--warehouse", str(tmp_path), "--name", "x", "--yes", status=3)
    assert "[LL0804]" in failed
    assert shell("drop", topic, *options, "--purge", "--yes")[0]["files_deleted"] > 2
    assert "[LL0804]" in shell("describe", topic, *options, status=3)


def test_a_partitioned_table_has_a_file_for_each_day(
    shell: Shell, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """The records of `make_topic` are of one day, and the last ones of another."""
    topic = make_topic(30)
    status = shell(
        "create", topic, "--warehouse", str(tmp_path), "--partition-by", "week", status=2
    )
    assert "hour(timestamp)" in status
    shell("create", topic, "--warehouse", str(tmp_path), "--partition-by", "day(timestamp)")
    archiver = Archiver(bootstrap, topic, tmp_path)
    with Producer(bootstrap) as producer:
        for number in range(3):
            at = START_MS - 86_400_000 * number
            producer.send(topic, b"v%d" % (30 + number), partition=number, timestamp_ms=at)
    for number in range(3):
        archiver.run()
        produce(bootstrap, topic, range(33 + number * 30, 63 + number * 30))
    (shown,) = shell("describe", topic)
    assert (shown["partition_by"], shown["rows"]) == ("day(timestamp)", 93)
    table = archiver.job.address.load()
    days = {task.file.partition[0] for task in table.scan().plan_files()}
    assert len(days) == 3
    (compacted,) = shell("compact", topic, "--min-files", "2")
    assert compacted["rows"] >= 90
    (audited,) = shell("audit", topic)
    assert (audited["sound"], audited["rows"]) == (True, 93)
    assert len(BatchQuery(bootstrap, topic).run()) == 123
    with Admin(bootstrap) as admin:
        admin.configs.alter(ResourceType.TOPIC, topic, {"table.partition_by": "partition"})
    with pytest.raises(ValueError, match="applies to new tables only"):
        Archiver(bootstrap, topic, tmp_path)


def test_an_audit_finds_rows_of_another_program(
    shell: Shell, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(30)
    shell("create", topic, "--warehouse", str(tmp_path))
    archiver = Archiver(bootstrap, topic, tmp_path)
    archiver.run()
    table = archiver.job.address.load()
    rows = table.scan(row_filter="partition = 1 and offset < 2").to_arrow()
    table.append(rows)
    text = shell("audit", topic, status=1)
    assert f"[LL0806] {topic}-1: 2 offsets twice in the table (first 0, 1)" in text
    table.refresh().delete("partition = 1 and offset = 3")
    assert "1 offset missing in the table (first 3)" in shell("audit", topic, status=1)


_DUCKDB = """
import duckdb
duckdb.sql("SET enable_progress_bar=false")
columns = 'count(*), count(DISTINCT (partition, "offset")), sum("offset")'
query = f"LOAD avro; LOAD iceberg; SELECT {columns} FROM iceberg_scan('TABLE')"
print(*duckdb.sql(query).fetchone())
"""


def test_other_readers_agree_about_a_compacted_table(
    shell: Shell, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(30)
    warehouse, home = tmp_path / "warehouse", tmp_path / "home"
    home.mkdir()
    shell("create", topic, "--warehouse", str(warehouse))
    archiver = Archiver(bootstrap, topic, warehouse)
    for number in range(1, 4):
        archiver.run()
        produce(bootstrap, topic, range(number * 30, number * 30 + 30))
    shell("compact", topic, "--min-files", "2")
    archiver.run()

    table = archiver.job.address.load()
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    rows = pa.concat_tables(
        [pq.read_table(file, columns=["partition", "offset"]) for file in files]
    )
    expected = sorted((partition, offset) for partition in range(3) for offset in range(40))
    assert sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True)) == expected
    path = str(table.metadata_location).removeprefix("file://")
    assert run_script(_DUCKDB.replace("TABLE", path), home).split() == ["120", "120", str(3 * 780)]


def test_a_topic_without_a_table_is_named(shell: Shell, make_topic: MakeTopic) -> None:
    assert "has no table" in shell("describe", make_topic(), status=3)
    assert "does not exist" in shell("audit", "no-such-topic", status=3)
    assert "[LL0902]" in shell("expire", "t", "--orphan-age", "5m", status=2)
    assert "[LL0902]" in shell("compact", "t", "--target", "0", status=2)
