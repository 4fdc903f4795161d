"""An archive job that a test kills: `archive_worker.py BOOTSTRAP TOPIC FOLDER BATCH_BYTES STOP`.

It archives in small batches, beside other jobs, until the file STOP exists and the topic is
complete. Records that the log lost after they were archived are moved out of the table.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from lakelog.tables.archive.failures import PASSING
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import LogDivergedError
from spark.archiver import Archiver


def main(bootstrap: str, topic: str, folder: str, batch_bytes: str, stop: str) -> None:
    is_complete = False
    while not is_complete:
        # Another job was first, the broker is away, or the log lost its tail.
        with suppress(*PASSING, LogDivergedError):
            archiver = Archiver(
                bootstrap, topic, Path(folder), int(batch_bytes), is_alone=False, skip_lost=True
            )
            while not is_complete:
                is_last = Path(stop).exists()
                ends = archiver.run()
                is_complete = is_last and ends == log_ends(bootstrap, topic)
                time.sleep(0.01)


def log_ends(bootstrap: str, topic: str) -> dict[int, int]:
    with TopicClient(bootstrap, client_id="test") as client:
        partitions = client.describe([topic])[topic].partitions
        found = client.latest([(topic, partition) for partition in partitions])
    return {partition: end for (_, partition), end in found.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
