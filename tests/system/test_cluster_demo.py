"""`make demo-cluster`, with less time between its faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.testing.cluster_demo.demo import run_demo


@pytest.mark.xdist_group("zookeeper")
def test_faults_lose_no_acknowledged_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_demo(tmp_path, steady_s=0.5)
    said = capsys.readouterr().out
    assert said.count("repaired: all replicas are in sync") == 3
    assert "Nothing acknowledged is missing." in said
