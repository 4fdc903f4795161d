"""A refresh that a test kills: `refresh_worker.py BOOTSTRAP TOPIC STOP`.

It refreshes the newest records beside other processes that do the same, until the file STOP exists
and a refresh after that has found nothing to do.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from lakelog.spark.archive.upkeep import FAILED, Refreshes


def main(bootstrap: str, topic: str, stop: str) -> None:
    refreshes = Refreshes(bootstrap, print)
    while True:
        is_last = Path(stop).exists()
        with suppress(*FAILED):  # another process was first, or the archive is not there yet
            done = refreshes.refresh(topic)
            if is_last and done is not None and not done.commits:
                return
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
