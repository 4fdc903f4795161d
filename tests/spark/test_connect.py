from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

SCRIPT = Path(__file__).parent / "connect_session.py"


def test_the_same_over_spark_connect(bootstrap: str, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic()

    done = subprocess.run(
        [sys.executable, str(SCRIPT), bootstrap, topic, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    values = sorted(f"v{i}" for i in range(10))
    assert found["kind"] == "pyspark.sql.connect.session"
    assert found["columns"][:3] == ["key", "value", "topic"]
    assert found["batch"] == values
    assert found["stream"] == values
