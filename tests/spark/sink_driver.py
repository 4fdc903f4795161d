"""The driver that the sink's kill test kills.

`sink_driver.py KIND MASTER BOOTSTRAP SOURCE TARGET CHECKPOINT BATCH LOG` warms a session up, says
so, and after a line of its standard input runs a query from topic to topic. It starts a failed
query again. BATCH is the number of records of a micro-batch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from lakelog.spark import write_to
from lakelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SINK_ID = "copy"


def start(
    session: SparkSession, kind: str, source: str, target: str, **words: str
) -> StreamingQuery:
    """Start the query that copies key and value."""
    broker = {"kafka.bootstrap.servers": words["bootstrap"]}
    rows = (
        session.readStream.format("lakelog")
        .options(**broker)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", words["batch"])
        .load()
        .select("key", "value")
    )
    writer = rows.writeStream.option("checkpointLocation", words["checkpoint"])
    if kind == "foreachBatch":
        return writer.foreachBatch(write_to(target, broker)).start()
    writer = writer.format("lakelog").options(**broker).option("topic", target)
    return writer.option("delivery", kind).start()


def main(kind: str, master: str, bootstrap: str, *words: str) -> None:
    source, target, checkpoint, batch, log = words
    session = local_session("kill test", log=Path(log), master=master)
    session.range(2).mapInArrow(lambda rows: rows, "id long").collect()
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        query = start(
            session,
            kind,
            source,
            target,
            bootstrap=bootstrap,
            checkpoint=checkpoint,
            batch=batch,
        )
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"failed {str(error)[:2000]!r}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
