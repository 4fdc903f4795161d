"""Topics in a session that nothing of ours has set up: `format("lakelog")` is found by its name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from schema_registry import schema_registry
from spark.program import result_of
from spark.topics import TYPED, MakeTopic, produce_typed

pytestmark = [pytest.mark.spark]

SCRIPT = Path(__file__).parent / "stock_session.py"
LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
KINDS = {
    # What activating a virtual environment does; the workers run the `python3` of the path.
    "classic": (
        "pyspark.sql.session",
        {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    ),
    "connect": (
        "pyspark.sql.connect.session",
        {"PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},  # a free port for the server
    ),
}
OURS = ("PYSPARK_PYTHON", "LAKELOG_WORKER_PYTHON", "LAKELOG_WORKER_PYTHONPATH", "PYTHONWARNINGS")


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_written_read_named_typed_and_followed(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, kind: str
) -> None:
    topic, typed = make_topic(), make_topic(partitions=1)
    session, settings = KINDS[kind]
    environment = {name: value for name, value in os.environ.items() if name not in OURS}

    with schema_registry() as registry:
        produce_typed(bootstrap, typed, registry)
        words = (kind, bootstrap, topic, typed, registry.url, str(tmp_path / "checkpoint"))
        environment |= LOOPBACK | settings
        found = result_of(SCRIPT, *words, folder=tmp_path, environment=environment)

    values = sorted(f"v{i}" for i in range(10))
    assert found["kind"] == session
    assert found["columns"][:3] == ["key", "value", "topic"]
    assert found["batch"] == values
    assert found["stream"] == values
    assert found["view"] == values
    assert found["typed"] == TYPED
    assert found["lag"] == {"0": 0, "1": 0, "2": 0}
