"""Spark sessions whose workers can import lakelog: for programs, and for lakelog's own commands."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import site
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
"""Options of Java for short jobs, whose work is done in Python: optimized compilation costs more
than it saves."""

_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_SETTINGS = frozenset(
    {"SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"}
)
"""Variables that name, or lead to, a master that the program does not know."""

_JAVA_MIN = 17
_WORKER_PYTHON = Path(__file__).with_name("worker-python")


class JavaMissingError(Exception):
    """Java is missing or too old. The text states what to install."""


def require_java(program: str = "Spark") -> str:
    """Return the path of Java 17 or newer, as Spark finds it. Raises `JavaMissingError`.

    program: needs Java, for the text of the error.
    """
    home = os.environ.get("JAVA_HOME", "")
    where = f"in JAVA_HOME ({home})" if home else "on the PATH"
    java = shutil.which(f"{home}/bin/java" if home else "java")
    version = 0 if java is None else _java_version(java)
    if java is not None and version >= _JAVA_MIN:
        return java
    reason = f"found Java {version}" if version else "found no Java"
    raise JavaMissingError(
        f"{program} needs Java {_JAVA_MIN} or newer, but {reason} {where}: install it, for example "
        f"with apt-get install openjdk-{_JAVA_MIN}-jre-headless"
    )


@cache
def _java_version(java: str) -> int:
    """Return the feature release (8 for 1.8.0), or 0 if the output does not contain it."""
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else 0


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """Return a session whose workers run this Python, so that they find `format("lakelog")`.

    With a local master it also writes checkpoints as `checkpoint_writer` describes, unless the user
    chose a writer.

    By default PySpark's workers run the first `python3` on the PATH. If that is not this Python (as
    outside of an activated environment), queries fail with DATA_SOURCE_NOT_FOUND. A
    `PYSPARK_PYTHON` in the environment takes precedence. With a local master, workers start as
    `choose_worker_python` describes.

    Args:
        builder: a `SparkSession.builder` with name, master and settings; by default Spark's own.

    Raises `JavaMissingError`.
    """
    require_java()
    from pyspark.sql import SparkSession

    builder = builder or SparkSession.builder
    choose_worker_python(_master_of(builder))
    spark = builder.getOrCreate()
    for name, value in checkpoint_writer(spark.conf.get("spark.master", "") or "").items():
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, value)
    return spark


def _master_of(builder: SparkSession.Builder) -> str:
    """Return the master of a session that is not created yet; empty if Spark's settings choose it.

    pip's PySpark runs `local[*]` if neither the builder nor the environment says anything.
    """
    options: dict[str, str] = builder._options
    is_open = "spark.remote" not in options and _SETTINGS.isdisjoint(os.environ)
    return options.get("spark.master", "local[*]" if is_open else "")


def local_session(name: str, *, log: Path, master: str = "local[2]") -> SparkSession:
    """Return a session whose workers run this Python and whose log goes to the file `log`.

    Java writes to the standard error that it inherits, from its start on. Standard error is
    therefore redirected while Java starts. Raises `JavaMissingError`, and `OSError` if `log` cannot
    be written.
    """
    require_java()
    choose_worker_python(master)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    with warnings.catch_warnings(), _standard_error_to(log), _handler_kept(signal.SIGINT):
        warnings.simplefilter("ignore", FutureWarning)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(name).master(master)
        return (
            builder.config(map=driver_address(master) | checkpoint_writer(master))
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", " ".join(_QUICK_START))
            .config("spark.executor.extraJavaOptions", " ".join(_QUICK_START))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )


def has_local_workers(master: str) -> bool:
    """Return whether all workers run on this host: `local`, `local[...]`, `local-cluster[...]`."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def driver_address(master: str) -> dict[str, str]:
    """Return the settings of the address at which workers reach the driver.

    For workers on other hosts the result is empty: Spark finds an address itself.
    """
    if not has_local_workers(master):
        return {}
    return {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def checkpoint_writer(master: str) -> dict[str, str]:
    """Return the setting that makes micro-batches start 4 processes instead of 20.

    Spark writes two checkpoint files for each micro-batch. Without Hadoop's native library, its
    default starts `readlink` for each path and `chmod` for each file, about 100 ms in all. This
    class of Spark starts `chmod` only. On a local disk both look for the file and then rename.
    Where a file is overwritten, as offsets and commits never are, this class renames its checksum
    in a step of its own: queries with state are safer with Spark's default. For the checkpoints of
    other masters the result is empty.
    """
    return {_CHECKPOINT_FILES: _BY_FILE_SYSTEM} if has_local_workers(master) else {}


def choose_worker_python(master: str) -> None:
    """Set `PYSPARK_PYTHON` to this Python, unless the user set it.

    Local workers start it through a script that makes it start faster; on other hosts the script
    may not exist. The script leaves out Spark's copy of PySpark, so it needs another. A value that
    names the script was inherited from another process of lakelog and is replaced, because that
    process may have had another Python path.
    """
    if os.environ.get("PYSPARK_PYTHON", str(_WORKER_PYTHON)) != str(_WORKER_PYTHON):
        return
    quick = has_local_workers(master) and os.access(_WORKER_PYTHON, os.X_OK) and _has_pyspark()
    os.environ["PYSPARK_PYTHON"] = str(_WORKER_PYTHON) if quick else sys.executable
    os.environ["LAKELOG_WORKER_PYTHON"] = sys.executable
    os.environ["LAKELOG_WORKER_PYTHONPATH"] = os.environ.get("PYTHONPATH", "")


def _has_pyspark() -> bool:
    """Return whether every process of this Python finds PySpark.

    A program may have added that of SPARK_HOME to its own path alone, as findspark does.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return False
    paths = [*site.getsitepackages(), site.getusersitepackages()]
    paths += os.environ.get("PYTHONPATH", "").split(":")
    return str(Path(spec.origin).parents[1]) in paths


@contextmanager
def _handler_kept(number: signal.Signals) -> Iterator[None]:
    """Restore the handler of a signal that PySpark replaces.

    PySpark's handler of SIGINT would interrupt any call to Java with a traceback. The commands of
    lakelog finish their work instead.
    """
    before = signal.getsignal(number)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(number, before)


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Redirect the file descriptor of standard error to a file."""
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
