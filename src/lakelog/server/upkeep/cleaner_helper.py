"""The program that compacts logs for a broker: reads jobs, writes answers, a line of JSON each.

It reads closed segments and writes `.cleaned` files beside them, and changes nothing else. If it
fails, the log is unchanged.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from lakelog.base.errors import is_shortage
from lakelog.runtime.api import Disk
from lakelog.runtime.posix import PosixDisk, become_helper, raise_descriptor_limit
from lakelog.storage.compaction.clean import compact
from lakelog.storage.compaction.job import Answer, CompactionFailed, CompactionJob, encode_answer
from lakelog.storage.errors import CorruptLog

_PAUSE_MIN_S = 0.05


class Throttle:
    """Sleeps so that no more than `bytes_per_second` are read and written; 0 is no limit."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._since = time.monotonic()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        if self._rate <= 0:
            return
        self._bytes += size
        early_s = self._bytes / self._rate - (time.monotonic() - self._since)
        if early_s >= _PAUSE_MIN_S:
            time.sleep(early_s)


def answers(disk: Disk, job: CompactionJob, throttle: Callable[[int], None]) -> Iterator[Answer]:
    """Do a job and yield its answers; `throttle` is called with the bytes read and written.

    Damage, missing files and other `OSError`s become a last answer, `CompactionFailed`.
    """
    try:
        yield from compact(disk, job, throttle)
    except CorruptLog as error:
        yield CompactionFailed("corrupt", str(error))
    except FileNotFoundError as error:
        yield CompactionFailed("missing", str(error))
    except OSError as error:
        yield CompactionFailed("shortage" if is_shortage(error) else "io", str(error))


def main() -> None:
    """Do jobs until standard input ends, which it does when the broker ends or dies."""
    become_helper(int(sys.argv[1]))
    raise_descriptor_limit()
    output = sys.stdout.buffer
    for line in sys.stdin.buffer:
        job = CompactionJob.decode(line)
        for answer in answers(PosixDisk(), job, Throttle(job.bytes_per_second)):
            output.write(encode_answer(answer) + b"\n")
            output.flush()


if __name__ == "__main__":
    main()
