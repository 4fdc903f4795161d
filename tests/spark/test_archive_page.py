"""Runs the Python examples of docs/spark.md about tables, with another address and folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from lakelog.client.producer.api import Producer
from lakelog.spark.archive.engine import SparkEngine
from spark.topics import START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KEYS = {
    "retention.ms": "-1",
    "table.enable": "true",
    "table.errors": "dead-letter",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
DAMAGED = b"a value that changes on the disk"


def examples(first: str, last: str) -> list[str]:
    """The blocks between two headings."""
    text = PAGE.read_text(encoding="utf-8")
    return BLOCK.findall(text[text.index(first) : text.index(last)])


def fill(broker: BrokerProcess) -> None:
    """Produce two values of one key, an impossible timestamp, and a batch that is damaged then."""
    with Admin(broker.bootstrap) as admin:
        admin.topics.create("orders", partitions=1, configs=KEYS)
    records = [(b"old", START_MS), (b"new", START_MS), (b"early", 2**62), (DAMAGED, START_MS)]
    with Producer(broker.bootstrap) as producer:
        for value, timestamp_ms in records:
            producer.send("orders", value, key=b"k", timestamp_ms=timestamp_ms).result()
    # Times so far apart are in segments of their own.
    (log,) = (each for each in broker.data.glob("orders-0/*.log") if DAMAGED in each.read_bytes())
    with log.open("r+b") as file:
        file.seek(file.read().index(DAMAGED))
        file.write(b"A")


def test_every_example_of_tables_runs(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # `sync_topic` finds the session of the tests, and would stop it at its end.
    monkeypatch.setattr(SparkEngine, "close", lambda _: None)
    names: dict[str, Any] = {"spark": spark}
    history, latest = examples("## One read over table and log", "## Write a topic")
    dead_letters, sync = examples("### Records that cannot be rows", "## The demonstration")
    with BrokerProcess(tmp_path / "broker") as broker:
        fill(broker)
        for example in (sync, dead_letters, history, latest):
            here = example.replace("localhost:9092", broker.bootstrap)
            exec(compile(here.replace("/data/", f"{tmp_path}/"), str(PAGE), "exec"), names)

        shown = capsys.readouterr().out
        assert f"\n2 {tmp_path}" in f"\n{shown}".replace("file://", ""), "the rows of the archive"
        assert "0 2 [b'early'] the timestamp" in shown
        assert "0 3 [] the batch" in shown
        assert [bytes(row.value) for row in names["history"].collect()] == [b"old", b"new"]
        assert [bytes(row.value) for row in names["latest"].collect()] == [b"new"]
        broker.stop()
