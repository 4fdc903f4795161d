"""Spark sessions whose workers find lakelog: for programs, and for the commands that bring one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Jobs of seconds, whose work is done in Python: compiling Java well costs more than it saves."""

_JAVA_MIN = 17
_WORKER_PYTHON = Path(__file__).with_name("worker-python")


class JavaMissingError(Exception):
    """Spark cannot start. The text says what to install."""


def require_java() -> None:
    """Raises `JavaMissingError` unless there is a Java 17 or newer where Spark looks for it."""
    home = os.environ.get("JAVA_HOME", "")
    where = f"in JAVA_HOME ({home})" if home else "on the PATH"
    java = shutil.which(f"{home}/bin/java" if home else "java")
    version = 0 if java is None else _java_version(java)
    if version >= _JAVA_MIN:
        return
    found = f"Java {version} is" if version else "there is none"
    raise JavaMissingError(
        f"Spark needs Java {_JAVA_MIN} or newer and {found} {where}: install it, for example with "
        f"apt-get install openjdk-{_JAVA_MIN}-jre-headless"
    )


@cache
def _java_version(java: str) -> int:
    """The feature release, 8 for 1.8.0; 0 when the program does not say."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else 0


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """Return a session whose workers run this Python, so that they find `format("lakelog")`.

    PySpark's own workers run whatever `python3` the PATH has, which is this one only in an
    activated environment; a session with another ends in DATA_SOURCE_NOT_FOUND. A `PYSPARK_PYTHON`
    in the environment is kept.

    Args:
        builder: a `SparkSession.builder` with name, master and settings; without it, Spark's
            defaults.

    Raises `JavaMissingError`.
    """
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    return (builder or SparkSession.builder).getOrCreate()


def local_session(name: str, *, log: Path, master: str = "local[2]") -> SparkSession:
    """A session whose workers run this Python and whose own log goes to the file `log`.

    Java writes to the standard error it inherits, from its first moment on, so that is what is
    exchanged while it starts. Raises `JavaMissingError`.
    """
    require_java()
    choose_worker_python(master)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    with warnings.catch_warnings(), _standard_error_to(log), _handler_kept(signal.SIGINT):
        warnings.simplefilter("ignore", FutureWarning)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(name).master(master)
        return (
            builder.config(map=driver_address(master))
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", " ".join(_QUICK_START))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )


def has_local_workers(master: str) -> bool:
    """Whether all workers run on this host: `local`, `local[...]`, `local-cluster[...]`."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def driver_address(master: str) -> dict[str, str]:
    """Settings of where workers reach the driver; Spark finds an address for other hosts itself."""
    if not has_local_workers(master):
        return {}
    return {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def choose_worker_python(master: str) -> None:
    """This Python, through a script that makes it start quickly; of another machine's files we
    know nothing. The script may have been inherited from a process with another path."""
    if os.environ.get("PYSPARK_PYTHON", str(_WORKER_PYTHON)) != str(_WORKER_PYTHON):
        return
    quick = has_local_workers(master) and os.access(_WORKER_PYTHON, os.X_OK)
    os.environ["PYSPARK_PYTHON"] = str(_WORKER_PYTHON) if quick else sys.executable
    os.environ["LAKELOG_WORKER_PYTHON"] = sys.executable
    os.environ["LAKELOG_WORKER_PYTHONPATH"] = os.environ.get("PYTHONPATH", "")


@contextmanager
def _handler_kept(number: signal.Signals) -> Iterator[None]:
    """Spark takes ^C for itself: it would interrupt whatever talks to Java at that moment, with a
    traceback, where our commands end what they are doing."""
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, before)


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
