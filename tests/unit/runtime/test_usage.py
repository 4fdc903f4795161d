from __future__ import annotations

import os
import time
from pathlib import Path

from lakelog.runtime.usage import process_usage


def test_the_usage_is_that_of_this_process() -> None:
    before = process_usage()
    assert before.cpu_s > 0
    assert before.virtual_bytes > before.resident_bytes > 1 << 20
    assert 0 < before.start_time_s <= time.time()
    assert 3 <= before.open_fds < before.fds_max


def test_an_open_file_counts_as_a_descriptor(tmp_path: Path) -> None:
    before = process_usage().open_fds
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    try:
        assert process_usage().open_fds == before + 1
    finally:
        os.close(descriptor)
    assert process_usage().open_fds == before
