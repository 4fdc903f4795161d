"""One checkpoint that Spark's own Kafka connector and lakelog continue in turn.

`official_session.py JARS BOOTSTRAP TOPIC TYPED URL FOLDER`. It produces before each run, and prints
as JSON the values of each run, the group of each query with its offsets, and the values of the
topic TYPED, which the schema registry at URL describes, as `format("kafka")` reads them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from lakelog.spark import from_registry, publish_progress

RUNS = ("kafka", "lakelog", "kafka", "lakelog")


def main(jars: str, bootstrap: str, topic: str, typed: str, url: str, folder: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    publisher = publish_progress(spark, bootstrap=bootstrap)
    found: dict[str, Any] = {"values": [], "offsets": []}
    for number, kind in enumerate(RUNS):
        with Producer(bootstrap) as producer:
            for row in range(3):
                producer.send(topic, b"%d" % (number * 10 + row), partition=row % 2)
        seen: list[str] = []
        query = (
            spark.readStream.format(kind)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(collector(seen))
            .queryName(f"run{number}")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found["values"].append(sorted(seen))
    publisher.stop()
    with Admin(bootstrap) as admin:
        for number in range(len(RUNS)):
            committed = admin.groups.offsets(f"spark-run{number}")
            found["offsets"].append({str(key[1]): at.offset for key, at in committed.items()})
    records = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    values = from_registry("value", url, subject=f"{typed}-value", headers="headers")
    typed_records = records.options(subscribe=typed, includeHeaders=True).load()
    found["typed"] = [row[0]["data"]["id"] for row in typed_records.select(values).collect()]
    print(json.dumps(found))
    spark.stop()


def collector(seen: list[str]) -> Callable[[DataFrame, int], None]:
    def collect(frame: DataFrame, _: int) -> None:
        seen.extend(bytes(row["value"]).decode() for row in frame.select("value").collect())

    return collect


if __name__ == "__main__":
    main(*sys.argv[1:])
