"""The driver that the kill test kills: `archive_driver.py BOOTSTRAP TOPIC WAREHOUSE LOG`.

It warms a session up, says so, and archives the topic for every line of its standard input.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from lakelog.spark.archive.sync import SyncError, sync_topic
from lakelog.spark.session import local_session


def main(bootstrap: str, topic: str, warehouse: str, log: str) -> None:
    session = local_session("kill test", log=Path(log))
    with tempfile.TemporaryDirectory() as elsewhere:
        sync_topic(bootstrap, f"{topic}-warm-up", elsewhere, spark=session)
    print("ready", flush=True)
    for _ in sys.stdin:
        try:
            result = sync_topic(bootstrap, topic, warehouse, spark=session)
            print(f"done {sum(result.ends.values())}", flush=True)
        except SyncError as error:
            print(f"failed {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
