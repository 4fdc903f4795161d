"""A program for a cluster: `standalone_session.py MASTER BOOTSTRAP TOPIC TARGET`.

Its workers unpack the archive `environment.tar.gz` of the working directory. It prints as JSON the
addresses of the processes, and the values of a batch and of a stream.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession

from lakelog.client.admin import Admin
from lakelog.spark import publish_progress
from lakelog.spark.session import session


def main(master: str, bootstrap: str, topic: str, target: str) -> None:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.archives", "environment.tar.gz#environment")
    builder = builder.config("spark.executor.memory", "512m")
    quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = builder.config("spark.executor.extraJavaOptions", quick_start)
    spark = session(builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0"))
    publisher = publish_progress(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    batch = spark.read.format("lakelog").options(**options).load()
    written = batch.select("value").write.format("lakelog").mode("append")
    written.options(**{"kafka.bootstrap.servers": bootstrap, "topic": target}).save()
    stream = (
        spark.readStream.format("lakelog")
        .options(**{**options, "subscribe": target}, startingOffsets="earliest")
        .load()
        .writeStream.format("memory")
        .queryName("seen")
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    publisher.stop()
    with Admin(bootstrap) as admin:
        found = admin.groups.lag("spark-seen")
        lags = [lag.records for (name, _), lag in found.items() if name == target]
    context = spark.sparkContext
    homes = context.parallelize(range(4), 4).map(lambda _: sys.prefix).collect()
    processes = context._jsc.sc().statusTracker().getExecutorInfos()
    driver = context.getConf().get("spark.driver.host")
    result = {
        "driver": driver,
        "executors": sorted({process.host() for process in processes} - {driver}),
        "homes": sorted(set(homes)),
        "batch": values(batch),
        "stream": values(spark.table("seen")),
        "lag": lags,
    }
    print(json.dumps(result))
    spark.stop()


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.select("value").collect())


if __name__ == "__main__":
    main(*sys.argv[1:])
