from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from lakelog.client.producer.api import Producer
from lakelog.spark.archive.sync import SyncResult
from lakelog.spark.demo.__main__ import demo as run_demo
from lakelog.spark.demo.pipeline import LINES_TOPIC, Demo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

REQUEST = b'10.0.0.%d - - [17/May/2015:10:05:%02d +0000] "GET /%d HTTP/1.1" 200 5 "-" "agent"'


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lakelog.spark.demo", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"COLUMNS": "120"} | environment,
    )


def test_no_byte_of_an_ugly_log_is_lost(tmp_path: Path) -> None:
    requests = [REQUEST % (i % 4, i % 60, i) for i in range(50)]
    ugly = [
        b"",
        b"\r",
        b"\x00\x01\x02",
        b"\xff\xfe not UTF-8 \xc3\x28",
        requests[7].replace(b"agent", b"ag\xffent"),
        b"x" * 1_000_000,
        b"10.0.0.1 - - [99/Foo/2015:10:05:03 +0000] cut off",
    ]
    kept = [requests[0] + b"\r", requests[1].replace(b"agent", b"a\x00b"), requests[2]]  # again
    log = tmp_path / "ugly.log"
    log.write_bytes(b"\n".join([*ugly, *requests, *kept, b"", b"no final newline"]))

    done = demo("--input", str(log))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "53 requests parsed, 9 malformed lines kept raw, 2 repeated lines kept" in done.stdout
    assert "All 62 lines are where they should be." in done.stdout
    assert "NO" not in done.stdout


def plant_a_record(run: Demo, archive: SyncResult) -> None:
    with Producer(run.bootstrap) as producer:
        producer.send(LINES_TOPIC, REQUEST % (1, 1, 1), partition=0)


def remove_an_archived_record(run: Demo, archive: SyncResult) -> None:
    file = next(iter(StaticTable.from_metadata(archive.metadata_path).scan().plan_files())).file
    path = urlsplit(file.file_path).path
    rows = pq.read_table(path)
    pq.write_table(rows.slice(1), path)


@pytest.mark.parametrize(
    ("damage", "shown"),
    [
        (plant_a_record, "Something is missing, repeated or changed."),
        (remove_an_archived_record, "instead of"),
    ],
)
def test_a_mismatch_is_status_1(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Demo, SyncResult], None],
    shown: str,
) -> None:
    """In this process, which has a session already; everything else is as in `make demo`."""
    log = tmp_path / "access.log"
    log.write_bytes(b"\n".join(REQUEST % (i % 4, i, i) for i in range(40)))
    archive = Demo.archive

    def archive_and_damage(run: Demo, topic: str) -> SyncResult:
        result = archive(run, topic)
        if topic == LINES_TOPIC:
            damage(run, result)
        return result

    monkeypatch.setattr(Demo, "archive", archive_and_damage)
    monkeypatch.setattr(spark, "stop", lambda: None)

    assert run_demo(input_=log) == 1

    said = capsys.readouterr()
    assert shown in said.out + said.err
    assert "are where they should be" not in said.out


def test_a_missing_java_is_one_clear_line(tmp_path: Path) -> None:
    done = demo(JAVA_HOME=str(tmp_path), PATH=str(tmp_path))

    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "install it" in done.stderr


def test_a_missing_input_is_one_clear_line(tmp_path: Path) -> None:
    done = demo("--input", str(tmp_path / "nothing.log"))

    assert done.returncode == 1
    assert "file not found" in done.stderr
