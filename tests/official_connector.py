"""Spark's own Kafka connector, for tests and benchmarks that run it beside the lakelog source."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from kafka_jars import jars_of, require

_SOURCES = Path(__file__).parent.parent / "benchmarks" / "spark_connector"


def connector_jars() -> list[Path]:
    """The connector, and stand-ins for three classes of a jar that it needs for tokens only."""
    folder = jars_of(_SOURCES / "pom.xml")
    return [*sorted(folder.glob("*.jar")), _stand_ins(folder)]


def _stand_ins(folder: Path) -> Path:
    """Compiled once; where several processes run tests, one of them does it."""
    import pyspark

    target = folder.with_name(f"{folder.name}.stand-ins") / "token-stand-ins.jar"
    target.parent.mkdir(exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            classes = target.parent / "classes"
            shutil.rmtree(classes, ignore_errors=True)
            classes.mkdir()
            spark_jars = Path(pyspark.__file__).parent / "jars"
            sources = sorted(map(str, _SOURCES.glob("*.java")))
            compiler = [require("javac"), "-cp", f"{spark_jars}/*", "-d", str(classes)]
            subprocess.run([*compiler, *sources], check=True)
            partial = target.with_suffix(".partial")
            subprocess.run(
                [require("jar"), "cf", str(partial), "-C", str(classes), "."], check=True
            )
            partial.rename(target)
    return target
