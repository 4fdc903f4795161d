"""Queries that move between `format("kafka")` with its jars and `format("lakelog")`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from official_connector import connector_jars
from schema_registry import schema_registry
from spark.program import result_of
from spark.topics import TYPED, MakeTopic, produce_typed

pytestmark = [pytest.mark.spark]

SCRIPT = Path(__file__).parent / "official_session.py"


def test_a_checkpoint_moves_to_lakelog_and_back(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Each record is read once, and the progress of both kinds of queries is a group.

    Values of a schema registry are typed columns of a DataFrame of the connector, too.
    """
    topic, typed = make_topic(partitions=2), make_topic(partitions=1)
    jars = ",".join(map(str, connector_jars()))

    with schema_registry() as registry:
        produce_typed(bootstrap, typed, registry)
        words = (jars, bootstrap, topic, typed, registry.url, str(tmp_path / "checkpoint"))
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        found = result_of(SCRIPT, *words, folder=tmp_path, environment=environment)

    assert found["typed"] == TYPED
    assert found["values"] == [sorted(str(10 * run + row) for row in range(3)) for run in range(4)]
    assert found["offsets"] == [{"0": 2 * run, "1": run} for run in range(1, 5)]
