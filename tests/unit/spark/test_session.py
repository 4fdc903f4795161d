from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakelog.spark.session import (
    _SETTINGS,
    JavaMissingError,
    checkpoint_writer,
    choose_worker_python,
    driver_address,
    require_java,
    session,
)

_OLD = ['openjdk version "1.8.0_392"', 'openjdk version "11.0.22" 2024-01-16']
_NEW = ['openjdk version "17.0.15" 2025-04-15', 'java version "26" 2026-03-17']
_ROOT = Path(__file__).parents[3]


def java(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


def choose(monkeypatch: pytest.MonkeyPatch, path: Path, home: Path | None = None) -> None:
    monkeypatch.setenv("PATH", f"{path}:/usr/bin:/bin" if path.exists() else str(path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(home))


@pytest.mark.parametrize("says", _NEW)
def test_a_java_that_is_new_enough_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str
) -> None:
    java(tmp_path, says)
    choose(monkeypatch, tmp_path)
    require_java()


@pytest.mark.parametrize(("says", "version"), [(_OLD[0], 8), (_OLD[1], 11)])
def test_an_old_java_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, version: int
) -> None:
    java(tmp_path, says)
    choose(monkeypatch, tmp_path)
    with pytest.raises(JavaMissingError, match=rf"Java 17 .* found Java {version} on the PATH"):
        require_java()


def test_java_home_goes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java(tmp_path, _NEW[0])
    java(tmp_path / "old" / "bin", _OLD[1])
    choose(monkeypatch, tmp_path, tmp_path / "old")
    with pytest.raises(JavaMissingError, match=rf"found Java 11 in JAVA_HOME \({tmp_path}/old\)"):
        require_java()


@pytest.mark.parametrize("says", ["", None])
def test_a_missing_java_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str | None
) -> None:
    if says is not None:
        java(tmp_path / "bin", says)
    choose(monkeypatch, tmp_path / "bin")
    with pytest.raises(JavaMissingError, match=r"found no Java on the PATH: install it"):
        require_java()


@pytest.mark.parametrize(
    ("says", "status", "line"),
    [
        (_NEW[0], 0, ""),
        (_OLD[0], 2, "Java 8 is too old: install a JDK 17 or newer"),
        ("", 2, "Java is missing: install a JDK 17 or newer"),
    ],
)
def test_make_wants_the_same(tmp_path: Path, says: str, status: int, line: str) -> None:
    java(tmp_path, says)
    # `make check` runs jobs side by side, and hands their number to each `make` below it.
    unset = {"JAVA_HOME", "MAKEFLAGS", "MFLAGS"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        ["make", "--no-print-directory", "java"],
        cwd=_ROOT,
        env=environment | {"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert done.stderr.startswith(line)
    assert bool(done.stderr) == bool(line)


def test_workers_get_the_path_of_the_process_that_starts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYSPARK_PYTHON", "LAKELOG_WORKER_PYTHON", "LAKELOG_WORKER_PYTHONPATH"):
        monkeypatch.setenv(name, "restored afterwards")
    monkeypatch.delenv("PYSPARK_PYTHON")
    for path in ("first", "second"):  # as a process and its child would
        monkeypatch.setenv("PYTHONPATH", path)
        choose_worker_python("local[2]")
        look = [os.environ["PYSPARK_PYTHON"], "-c", "import sys; print(sys.executable, *sys.path)"]
        added = ("/spark/python/lib/pyspark.zip", "/py4j-1-src.zip", "/core.jar", "/of/users", path)
        environment = os.environ | {"PYTHONPATH": ":".join(added)}
        said = subprocess.run(look, env=environment, capture_output=True, text=True, check=True)
        assert sys.executable in said.stdout
        assert said.stdout.count(path) == 1
        assert 0 < said.stdout.find("/of/users") < said.stdout.find(path), "it takes precedence"
        assert not any(archive in said.stdout for archive in added[:3])

    monkeypatch.setenv("PYSPARK_PYTHON", "/a/python/of/the/users")
    choose_worker_python("local[2]")
    assert os.environ["PYSPARK_PYTHON"] == "/a/python/of/the/users"


def test_workers_elsewhere_need_no_file_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "LAKELOG_WORKER_PYTHON", "LAKELOG_WORKER_PYTHONPATH"):
        monkeypatch.setenv(name, "restored afterwards")
    monkeypatch.delenv("PYSPARK_PYTHON")
    choose_worker_python("spark://elsewhere:7077")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_workers_find_a_pyspark_that_the_program_alone_has_on_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PYSPARK_PYTHON", "LAKELOG_WORKER_PYTHON", "LAKELOG_WORKER_PYTHONPATH"):
        monkeypatch.setenv(name, "restored afterwards")
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for path, is_quick in (("", False), (str(tmp_path), True)):
        monkeypatch.delenv("PYSPARK_PYTHON")
        monkeypatch.setenv("PYTHONPATH", path)
        choose_worker_python("local[2]")
        assert (os.environ["PYSPARK_PYTHON"] != sys.executable) is is_quick


@pytest.mark.parametrize(
    ("master", "host"),
    [("local[2]", "127.0.0.1"), ("spark://lab:7077", None), ("yarn", None)],
)
def test_the_driver_is_on_loopback_for_workers_of_this_host_alone(
    master: str, host: str | None
) -> None:
    address = driver_address(master)
    assert {address.get(f"spark.driver.{key}") for key in ("host", "bindAddress")} == {host}


def test_checkpoints_of_other_masters_are_written_as_spark_chooses() -> None:
    assert checkpoint_writer("local[2]")
    assert checkpoint_writer("local-cluster[2,1,1024]")
    assert not checkpoint_writer("spark://lab:7077")


@pytest.mark.parametrize(
    ("master", "environment", "is_quick"),
    [
        ("local[2]", {}, True),
        (None, {}, True),  # pip's PySpark is local
        (None, {"SPARK_HOME": "/opt/spark"}, False),  # its settings may name any master
        ("local[2]", {"SPARK_HOME": "/opt/spark"}, True),
        ("spark://lab:7077", {}, False),
    ],
)
def test_workers_of_a_session_start_quickly_where_the_master_is_known_to_be_local(
    monkeypatch: pytest.MonkeyPatch, master: str | None, environment: dict[str, str], is_quick: bool
) -> None:
    for name in ("PYSPARK_PYTHON", "LAKELOG_WORKER_PYTHON", "LAKELOG_WORKER_PYTHONPATH"):
        monkeypatch.setenv(name, "restored afterwards")
    monkeypatch.delenv("PYSPARK_PYTHON")
    for name in _SETTINGS:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("lakelog.spark.session.require_java", lambda: None)

    session(_Builder(master))

    assert (os.environ["PYSPARK_PYTHON"] != sys.executable) is is_quick


class _Builder:
    """A builder of a session that exists already."""

    def __init__(self, master: str | None) -> None:
        self._options = {"spark.master": master} if master else {}

    def getOrCreate(self) -> SimpleNamespace:  # noqa: N802 - Spark's name
        settings = {"spark.master": self._options.get("spark.master", "")}
        return SimpleNamespace(conf=SimpleNamespace(get=settings.get, set=settings.__setitem__))
