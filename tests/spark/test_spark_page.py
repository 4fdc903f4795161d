"""Runs the Python examples of docs/spark.md about reading, with another address and folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from schema_registry import schema_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAYMENT = {"type": "record", "name": "P", "fields": [{"name": "amount", "type": "int"}]}
FIRST, LAST = "## Read a topic", "### Clusters"


def examples() -> list[str]:
    """The blocks from one heading to the other, in order: later ones use names of earlier ones."""
    text = PAGE.read_text(encoding="utf-8")
    return BLOCK.findall(text[text.index(FIRST) : text.index(LAST)])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """With a topic `orders` of one partition and 20 records, and an Avro value in `payments`."""
    with BrokerProcess(tmp_path / "broker") as process:
        with Admin(process.bootstrap) as admin:
            admin.topics.create("orders", partitions=1)
            admin.topics.create("payments", partitions=1)
        with Producer(process.bootstrap) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number)
            producer.send("payments", b"\0\0\0\0\1\x0a")
        yield process
        process.stop()


def test_every_example_of_reading_runs(
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the session of the tests, which `session()` finds."""
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ["PYSPARK_PYTHON"])
    names: dict[str, Any] = {}
    try:
        with schema_registry() as registry:
            registry.register("payments-value", PAYMENT)
            for example in examples():
                text = example.replace("localhost:9092", broker.bootstrap)
                text = text.replace("http://localhost:8081", registry.url)
                exec(compile(text.replace("/data/", f"{tmp_path}/"), str(PAGE), "exec"), names)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    assert len(examples()) >= 8
    shown = capsys.readouterr().out
    assert "\n10\n" in shown, "the first ten"
    assert "\n20\n" in shown, "records of the last hour"
    assert "|offset|amount|" in shown, "fields of the schema"
    assert "|      15|" in shown, "records of partition 0 from offset 5"
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 20
    with Admin(broker.bootstrap) as admin:
        (lag,) = admin.groups.lag("spark-orders_report").values()
    assert (lag.committed, lag.records) == (20, 0)
