"""A Spark standalone cluster of a master and two workers, whose Python comes with the program."""

from __future__ import annotations

import os
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from spark.program import result_of
from spark.standalone import awaited, daemon, worker_words
from spark.topics import MakeTopic

pytestmark = [pytest.mark.spark]

SCRIPT = Path(__file__).parent / "standalone_session.py"
SOURCES = Path(__file__).parents[2] / "src"
WORKERS = ("127.0.0.2", "127.0.0.3")
DRIVER = "127.0.0.4"


def environment_in(folder: Path) -> Path:
    """An environment with lakelog and the other packages of the tests; its archive."""
    home = folder / "environment"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for package in ("lakelog", "pyspark_lakelog"):
        (packages / package).symlink_to(SOURCES / package)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", dereference=False) as file:
        file.add(home, ".")
    return archive


def test_executors_on_other_addresses_read_write_and_follow(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, target = make_topic(30), make_topic()
    environment_in(tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    with daemon(logs / "master", "master.Master", "--port", "0", host="127.0.0.1") as log:
        master = awaited(log, r"(spark://127\.0\.0\.1:\d+)")
        words = [worker_words(master, tmp_path / f"work-{number}") for number in range(2)]
        with (
            daemon(logs / "w0", "worker.Worker", *words[0], host=WORKERS[0]),
            daemon(logs / "w1", "worker.Worker", *words[1], host=WORKERS[1]),
        ):
            settings = {"PYSPARK_PYTHON": "./environment/bin/python", "SPARK_LOCAL_IP": DRIVER}
            found = result_of(
                SCRIPT,
                *(master, bootstrap, topic, target),
                folder=tmp_path,
                environment=os.environ | settings,
            )

    assert found["driver"] == DRIVER, "lakelog forces no address on the driver"
    assert found["executors"] == sorted(WORKERS)
    unpacked = [home.startswith(str(tmp_path / "work-")) for home in found["homes"]]
    assert all(unpacked), found["homes"]
    assert found["batch"] == found["stream"] == sorted(f"v{i}" for i in range(30))
    assert found["lag"] == [0, 0, 0]
