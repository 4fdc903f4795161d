from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from lakelog.spark.session import checkpoint_writer, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

AT_FIRST = signal.getsignal(signal.SIGINT)
"""The program's own: no session has begun while tests are collected."""


def test_a_session_leaves_interrupts_to_its_program(spark: SparkSession) -> None:
    assert signal.getsignal(signal.SIGINT) is AT_FIRST


def test_workers_use_this_python_and_its_compiled_packages(spark: SparkSession) -> None:
    def look(_: int) -> tuple[str, list[str]]:
        return sys.prefix, sys.path

    [(prefix, path)] = spark.sparkContext.parallelize([0], 1).map(look).collect()

    assert prefix == sys.prefix
    assert not [entry for entry in path if entry.endswith((".jar", "pyspark.zip"))]


def test_a_session_writes_checkpoints_with_few_processes_unless_the_user_chose_a_writer(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ["PYSPARK_PYTHON"])
    ((name, chosen),) = checkpoint_writer("local[2]").items()
    assert spark.conf.get(name) == chosen
    try:
        spark.conf.unset(name)
        assert session().conf.get(name) == chosen
        spark.conf.set(name, "my.Writer")
        assert session().conf.get(name) == "my.Writer"
    finally:
        spark.conf.set(name, chosen)
