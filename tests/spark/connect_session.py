"""Reads and writes a topic over Spark Connect: `connect_session.py BOOTSTRAP TOPIC FOLDER`.

A process of its own, because one process cannot have a classic session and a Connect server.
"""

from __future__ import annotations

import json
import os
import sys


def main(bootstrap: str, topic: str, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_TESTING"] = "1"  # a free port for the server
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    rows = spark.sql("SELECT cast(id AS string) AS key, concat('v', id) AS value FROM range(10)")
    rows.write.format("lakelog").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", topic
    ).mode("append").save()
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
    found = {
        "kind": type(spark).__module__,
        "columns": batch.columns,
        "batch": sorted(row["value"].decode() for row in batch.select("value").collect()),
        "stream": sorted(row["value"].decode() for row in spark.table("seen").collect()),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
