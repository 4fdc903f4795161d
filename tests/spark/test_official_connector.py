"""Queries that move between `format("kafka")` with its jars and `format("lakelog")`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from official_connector import connector_jars
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

SCRIPT = Path(__file__).parent / "official_session.py"


def test_a_checkpoint_moves_to_lakelog_and_back(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Each record is read once, and the progress of both kinds of queries is a group."""
    topic = make_topic(partitions=2)
    jars = ",".join(map(str, connector_jars()))

    done = subprocess.run(
        [sys.executable, str(SCRIPT), jars, bootstrap, topic, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )

    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["values"] == [sorted(str(10 * run + row) for row in range(3)) for run in range(4)]
    assert found["offsets"] == [{"0": 2 * run, "1": run} for run in range(1, 5)]
