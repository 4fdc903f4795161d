from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lakelog.spark.archive import sync


def test_old_checkpoints_go_beside_a_run_that_takes_its_own_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of one topic share the folder, and one may end while the other looks around."""
    for name, age_s in (("old", 2 * sync._LEFTOVER_AGE_S), ("young", 0), ("ends", 0)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, times=(time.time() - age_s,) * 2)
    now_s = time.time()

    def end_the_other() -> float:
        if (tmp_path / "ends").exists():
            (tmp_path / "ends").rmdir()
        return now_s

    monkeypatch.setattr(sync.time, "time", end_the_other)
    monkeypatch.setattr(Path, "glob", lambda self, _: [self / "ends", self / "old", self / "young"])
    sync._remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]
