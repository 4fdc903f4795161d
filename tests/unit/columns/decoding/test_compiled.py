"""The cache of the compiled loop, which the processes of a host share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lakelog

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process, which keeps the compiled loop."""

_LOAD = """
import sys
from lakelog.columns.decoding.compiled import CompiledDecoder
stats = CompiledDecoder()._scan.stats
print(sum(stats.cache_misses.values()), stats.cache_path)
"""


def _link_all(source: Path, target: Path, *names: str) -> Path:
    """Make `target` look like `source`, with links to all but the folders below each other.

    Return the last of these folders, which is a real one and holds no `__pycache__`.
    """
    for name in names:
        source, target = source / name, target / name
        target.mkdir(parents=True)
        for each in source.iterdir():
            if each.name not in (*names, "__pycache__"):
                target.joinpath(each.name).symlink_to(each)
    return target


@pytest.mark.long
def test_processes_of_a_host_compile_once_and_where_they_may_write(tmp_path: Path) -> None:
    """They use the user's cache if the package is read only. Of processes that start together, one
    compiles and the other waits for its result."""
    source = Path(lakelog.__file__).parent.parent
    package = tmp_path / "package"
    room = _link_all(source, package, "lakelog", "columns", "decoding")
    (room / "__pycache__").touch()  # a file where the cache's folder would be: not even root can
    environment = os.environ | {
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _LOAD], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate()[0].split() for process in started]
    assert sorted(number for number, _ in said) == ["0", "1"]
    assert all(path.startswith(str(tmp_path / "cache")) for _, path in said)
