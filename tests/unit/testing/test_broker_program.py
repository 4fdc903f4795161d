"""The imports of a test broker's process, which take nearly all of its start.

They are counted in modules, not in seconds, so that a busy machine fails no test.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_PARSERS = {"rich"}
_TEST_SIDE = {"lakelog.testing.broker_process", "lakelog.client", "pytest"}
_SPARK = {"pyspark", "pyarrow", "pyiceberg", "numba"}


def test_it_imports_no_parser_and_ends_at_the_end_of_its_input(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = [sys.executable, "-X", "importtime", "-m", "lakelog.testing.broker_program"]
    with subprocess.Popen(
        [*program, scratch, scratch / "data", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        _, log = process.communicate()
    assert (ready, process.returncode) == ("ready\n", 0), log
    assert not scratch.exists()
    modules = set(re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE))
    assert "lakelog.server.app" in modules
    assert not modules & (_PARSERS | _TEST_SIDE | _SPARK)
