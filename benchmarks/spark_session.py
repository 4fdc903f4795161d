"""A session of Spark for benchmarks, and the processor time of its processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from brokers import process_tree

from lakelog.spark.session import checkpoint_writer, choose_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def start_session(master: str, jars: Sequence[Path], log: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    choose_worker_python(master)
    with log.open("ab") as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)  # Java's log, which is long, goes where its process found it
        try:
            return (
                SparkSession.builder.appName("benchmark")
                .master(master)
                .config("spark.jars", ",".join(map(str, jars)))
                .config("spark.driver.memory", "2g")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.driver.host", "127.0.0.1")
                .config(map=checkpoint_writer(master))
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def cpu_seconds(spark: SparkSession) -> tuple[float, float]:
    """Of Java, and of the Python processes below it that are alive or were waited for."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java: int = gateway.proc.pid
    java_ticks = python_ticks = 0
    for pid in process_tree(java):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        user, system, children_user, children_system = map(int, fields[11:15])
        python_ticks += children_user + children_system
        if pid == java:
            java_ticks += user + system
        else:
            python_ticks += user + system
    return java_ticks / _TICKS_PER_SECOND, python_ticks / _TICKS_PER_SECOND
