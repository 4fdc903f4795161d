"""The classes of Spark, prepared for Java: with them a session takes half of the processor time.

Java verifies and links about 15,000 classes for each session, unless it maps a file of classes that
another process has prepared (class data sharing). `python -m spark.class_archive` is the process
that prepares them, with a session that reads and writes topics and archives one.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from broker_process import BrokerProcess
from client_processes import python_path
from kafka_jars import QUICK_START, made_once, require

_FOLDER = Path(__file__).parents[2] / "build" / "classes"
_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable from which Spark takes options for the Java of a driver."""
_SILENT = "-Xlog:disable"
"""Java would name each class that it cannot prepare on standard output."""


def use_prepared_classes() -> None:
    """Have processes of this environment start Spark's Java with the file, made if it is missing.

    A Java of another class path ignores the file.
    """
    path = made_once(_FOLDER / f"spark-{_version()}.jsa", _prepare)
    os.environ[_OPTIONS] = " ".join([*QUICK_START, _SILENT, f"-XX:SharedArchiveFile={path}"])


def _version() -> str:
    """Return a digest of Java's version and of the folder of PySpark and its version."""
    import pyspark

    java = subprocess.run([require("java"), "-version"], capture_output=True, check=True).stderr
    text = f"{java!r} {pyspark.__file__} {pyspark.__version__}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _prepare(path: Path) -> None:
    path.unlink(missing_ok=True)
    options = " ".join([*QUICK_START, _SILENT, f"-XX:ArchiveClassesAtExit={path}"])
    environment = os.environ | {_OPTIONS: options, "PYTHONPATH": python_path()}
    command = [sys.executable, "-m", "spark.class_archive"]
    subprocess.run(command, check=True, env=environment)


def main() -> None:
    """Load the classes in a Java that writes them at its end; wait for that."""
    from lakelog.client.admin import Admin
    from lakelog.spark.archive.sync import sync_topic
    from lakelog.spark.session import local_session
    from spark.queries import read
    from spark.topics import produce

    with tempfile.TemporaryDirectory() as name, BrokerProcess(Path(name) / "data") as broker:
        folder = Path(name)
        with Admin(broker.bootstrap) as admin:
            admin.topics.create("prepared", partitions=3)
        produce(broker.bootstrap, "prepared", range(9))
        session = local_session("classes", log=folder / "log")
        sync_topic(broker.bootstrap, "prepared", str(folder / "warehouse"), spark=session)
        rows = read(session, broker.bootstrap, subscribe="prepared").select("key", "value")
        to = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "prepared"}
        rows.write.format("lakelog").options(**to).mode("append").save()
        rows.groupBy("value").count().write.parquet(str(folder / "rows"))
        assert session.read.parquet(str(folder / "rows")).count() == 9
        java = session.sparkContext._gateway.proc
        session.stop()
        java.stdin.close()
        java.wait()


if __name__ == "__main__":
    main()
