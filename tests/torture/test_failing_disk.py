"""One kind of operation fails, for files of one folder, in a process that knows nothing of it."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from torture.failing_disk import WORKS, FailingDisk

_USER = """
import errno, json, os, sys
inside, outside = (os.open(path, os.O_RDWR | os.O_CREAT) for path in sys.argv[1:])
into = os.open(os.devnull, os.O_WRONLY)
operations = {
    "write": lambda file: os.pwrite(file, b"x", 0),
    "sync": os.fdatasync,
    "read": lambda file: os.pread(file, 1, 0),
    "send": lambda file: os.sendfile(into, file, 0, 1),
}
def outcome(operation, file):
    try:
        operation(file)
    except OSError as error:
        return error.errno
for _ in sys.stdin:
    found = {
        name: [outcome(operation, file) for file in (inside, outside)]
        for name, operation in operations.items()
    }
    print(json.dumps(found), flush=True)
"""


class User:
    """A process that uses a file inside of the folder, and one outside."""

    def __init__(self, folder: Path, disk: FailingDisk) -> None:
        files = [str(folder / "disk" / "file"), str(folder / "file")]
        self._process = subprocess.Popen(
            [*disk.prefix, sys.executable, "-c", _USER, *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def failing(self) -> set[str]:
        """Return what fails with EIO inside of the folder. Nothing fails outside."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        assert {outside for _, outside in found.values()} == {None}
        assert {inside for inside, _ in found.values()} <= {None, errno.EIO}
        return {name for name, (inside, _) in found.items() if inside is not None}

    def end(self) -> None:
        self._process.communicate()


@pytest.mark.parametrize(
    ("kind", "failing"),
    [("writes", {"write", "sync"}), ("syncs", {"sync"}), ("reads", {"read", "send"})],
)
def test_a_disk_fails_and_works_again(kind: str, failing: set[str], tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk = FailingDisk(tmp_path / "disk", tmp_path / "control")
    user = User(tmp_path, disk)
    try:
        assert user.failing() == set()
        disk.fail(kind)
        assert user.failing() == failing
        disk.fail(WORKS)
        assert user.failing() == set()
    finally:
        user.end()
