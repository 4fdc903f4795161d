"""Writes and reads a topic as a user would, with nothing that is set up for lakelog.

`stock_session.py KIND BOOTSTRAP TOPIC TYPED URL FOLDER`. KIND is `classic` or `connect`; a process
of its own, because one process cannot have a classic session and a Connect server. The topic TYPED
has values of the schema registry at URL.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from lakelog.client.admin import Admin
from lakelog.spark import attach, from_registry, publish_progress


def main(kind: str, bootstrap: str, topic: str, typed: str, url: str, folder: str) -> None:
    builder = SparkSession.builder
    spark = (builder.remote("local[2]") if kind == "connect" else builder).getOrCreate()
    publisher = publish_progress(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    rows = spark.sql("SELECT cast(id AS string) AS key, concat('v', id) AS value FROM range(10)")
    writer = rows.write.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).mode("append").save()
    batch = spark.read.format("lakelog").options(**options).load()
    stream = (
        spark.readStream.format("lakelog")
        .options(**options)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    attach(spark, bootstrap, topics=[topic])
    view = spark.sql(f"SELECT value FROM `{topic}` WHERE offset >= 0")
    values = from_registry("value", url, subject=f"{typed}-value").alias("value")
    records = spark.read.format("lakelog").options(**options | {"subscribe": typed}).load()
    publisher.stop()
    with Admin(bootstrap) as admin:
        lags = admin.groups.lag("spark-seen")
    group = {str(key[1]): lag.records for key, lag in lags.items() if key[0] == topic}
    found = {
        "kind": type(spark).__module__,
        "columns": batch.columns,
        "batch": sorted(row["value"].decode() for row in batch.select("value").collect()),
        "stream": sorted(row["value"].decode() for row in spark.table("seen").collect()),
        "view": sorted(row["value"].decode() for row in view.collect()),
        "lag": group,
        "typed": [row[0] for row in records.select(values).select("value.data.id").collect()],
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
