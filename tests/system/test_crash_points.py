"""Every I/O call of the workloads as a crash point."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from crash_points import OPERATIONS, workloads

PAIRS_MIN = 2_000


def test_a_start_after_a_crash_at_any_call_finds_the_promised_records(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.CRITICAL, logger="lakelog")
    points, copies = Counter[str](), 0
    for workload in workloads():
        looked = workload.run()
        points.update(point.operation for point in looked)
        copies += looked.total()
    with capsys.disabled():
        listed = ", ".join(f"{name} {points[name]}" for name in OPERATIONS)
        print(f"\n{points.total()} crash points, {copies} crashes: {listed}")
    assert points.total() >= PAIRS_MIN
    assert set(points) == set(OPERATIONS)
    assert min(points.values()) >= 10
