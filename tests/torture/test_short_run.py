"""A short run over each metadata store: `make torture` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torture.servers import EMBEDDED, ZOOKEEPER

_TESTS = Path(__file__).parents[1]
_TIMEOUT_S = 1500.0


@pytest.mark.java
@pytest.mark.parametrize(("store", "seconds"), [(ZOOKEEPER, 60), (EMBEDDED, 30)])
def test_clients_under_faults_see_no_anomaly(
    store: str, seconds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--torture-seed")
    options = ("--store", store, "--seconds", str(seconds), "--seed", str(seed))
    done = subprocess.run(
        [sys.executable, "-m", "torture", *options, "--folder", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert " 0 anomalies" in done.stdout
