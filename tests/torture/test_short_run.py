"""Short runs of the plans of `make torture` and `make libraries`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from client_processes import python_path
from torture.servers import EMBEDDED, ZOOKEEPER

_TIMEOUT_S = 1500.0


@pytest.mark.java
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--store", ZOOKEEPER, "--seconds", "60"), id="zookeeper"),
        pytest.param(("--store", EMBEDDED, "--seconds", "30"), id="embedded"),
        pytest.param(("--store", EMBEDDED, "--plan", "libraries", "--faults", "3"), id="libraries"),
    ],
)
def test_clients_under_faults_see_no_anomaly(
    options: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = str(request.config.getoption("--torture-seed"))
    done = subprocess.run(
        [sys.executable, "-m", "torture", *options, "--seed", seed, "--folder", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert " 0 anomalies" in done.stdout
