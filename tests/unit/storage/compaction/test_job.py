"""Jobs and answers as lines between the broker and its helper process."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.storage.compaction.job import (
    Answer,
    CleanedGroup,
    CompactionDone,
    CompactionFailed,
    CompactionJob,
    CompactionStats,
    LastRecord,
    Source,
    decode_answer,
    encode_answer,
)

JOB = CompactionJob(
    folder=Path("/data/with\nnewline-0"),
    segments=(Source(0, 10, 1 << 40, 5), Source(10, 20, 7, 6)),
    later=(Source(20, 21, 0, 7),),
    first_dirty_offset=10,
    now_ms=1,
    delete_retention_ms=2,
    segment_bytes=3,
    segment_index_bytes=4,
    index_interval_bytes=5,
    producers={7: LastRecord(12, 3), (1 << 63) - 1: LastRecord(-1, 0)},
    map_bytes=6,
    map_load_factor=0.9,
    read_bytes=8,
    bytes_per_second=1.7976931348623157e308,
)


def test_a_job_is_one_line_and_the_same_after_it() -> None:
    line = JOB.encode()
    assert b"\n" not in line
    assert CompactionJob.decode(line) == JOB


@pytest.mark.parametrize(
    "answer",
    [
        CleanedGroup(0, 20, 99, (0, 10), (".log", ".index")),
        CompactionDone(20, CompactionStats(records_read=5, unreadable_batches=1)),
        CompactionFailed("io", "Input/output error\nin /data"),
    ],
)
def test_an_answer_is_one_line_and_the_same_after_it(answer: Answer) -> None:
    line = encode_answer(answer)
    assert b"\n" not in line
    assert decode_answer(line) == answer


@pytest.mark.parametrize(
    "line", [b"", b"Traceback", b"{}", b"[]", b'{"kind": "done", "answer": {"end_offset": 1}}']
)
def test_output_of_another_kind_is_rejected(line: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode_answer(line)
