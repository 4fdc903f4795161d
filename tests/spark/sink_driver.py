"""The driver that the sink's kill test kills: `sink_driver.py MASTER LOG`.

It warms a session up and prints a line. For each line `KIND BOOTSTRAP SOURCE TARGET CHECKPOINT
BATCH` of its standard input it runs a query from topic to topic, and starts it again after each
failure. BATCH is the number of records of a micro-batch. After a line `stay-down` it ends with the
first query that fails.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.spark import write_to
from lakelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(session: SparkSession, words: list[str]) -> StreamingQuery:
    """Start the query that copies key and value."""
    kind, bootstrap, source, target, checkpoint, batch = words
    broker = {"kafka.bootstrap.servers": bootstrap}
    rows = (
        session.readStream.format("lakelog")
        .options(**broker)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch)
        .load()
        .select("key", "value")
    )
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if kind == "foreachBatch":
        return writer.foreachBatch(write_to(target, broker)).start()
    writer = writer.format("lakelog").options(**broker).option("topic", target)
    return writer.option("delivery", kind).start()


def keep_running(session: SparkSession, jobs: queue.Queue[list[str]]) -> None:
    """Start the queries of jobs, and failed ones again, in the thread of the session.

    In another thread Spark would not find the Python data source.
    """
    running: list[tuple[list[str], StreamingQuery]] = []
    stays_down = False
    while True:
        with suppress(queue.Empty):
            words = jobs.get(timeout=0.02)
            if words == ["stay-down"]:
                stays_down = True
            else:
                running.append((words, start(session, words)))
        for number, (words, query) in enumerate(running):
            if not query.isActive:
                print(f"failed {str(query.exception())[:3000]!r}", flush=True)
                if stays_down:
                    os._exit(1)
                running[number] = words, start(session, words)


def main(master: str, log: str) -> None:
    session = local_session("kill test", log=Path(log), master=master)
    session.range(2).count()
    print("ready", flush=True)
    jobs: queue.Queue[list[str]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            jobs.put(line.split())

    threading.Thread(target=read, daemon=True).start()
    try:
        keep_running(session, jobs)
    except Exception as error:  # noqa: BLE001
        print(f"ended {str(error)[:3000]!r}", flush=True)
        # Java may have died, and would be waited for.
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
