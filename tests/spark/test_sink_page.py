"""Runs the Python examples of docs/spark.md about writing, with another address and folder."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from spark.queries import read, values
from spark.topics import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FIRST, LAST = "## Write a topic", "### When an exactly-once query stops"


def test_every_example_of_writing_runs(spark: SparkSession, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    examples = BLOCK.findall(text[text.index(FIRST) : text.index(LAST)])
    assert len(examples) == 4
    with BrokerProcess(tmp_path / "broker") as broker:
        with Admin(broker.bootstrap) as admin:
            for topic in ("orders", "invoices", "counts", "source"):
                admin.topics.create(topic, partitions=2)
        produce(broker.bootstrap, "source", range(20), partitions=2)
        names: dict[str, Any] = {"df": spark.range(3), "invoices": spark.sql("SELECT 'i' AS value")}
        names["orders"] = (
            spark.readStream.format("lakelog")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", "source")
            .option("startingOffsets", "earliest")
            .load()
        )
        for example in examples:
            here = example.replace("localhost:9092", broker.bootstrap)
            exec(compile(here.replace("/data/", f"{tmp_path}/"), str(PAGE), "exec"), names)
            if "query" in names:
                query = names.pop("query")
                query.processAllAvailable()
                query.stop()

        def written(topic: str) -> Counter[str]:
            return Counter(values(read(spark, broker.bootstrap, subscribe=topic)))

        assert written("orders") == Counter(f'{{"id":{number}}}' for number in range(3))
        assert written("invoices") == Counter([*(f"V{number}" for number in range(20)), "i"])
        # Four of twenty records have no key.
        assert written("counts") == Counter({"1": 16, "4": 1})
