"""A run of `lakelog table sync`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker_process import LAKELOG
from client_processes import python_path

TIMEOUT_S = 240
PLAIN = (sys.executable, str(Path(__file__).with_name("plain_command.py")))


class Sync:
    """A run of the command, in a process group of its own as a terminal would have it.

    inside: the beginning of the whole command. program: `lakelog`, or `PLAIN` for an archive
    without Java.
    """

    def __init__(
        self,
        bootstrap: str,
        *words: str,
        inside: Sequence[str] = (),
        program: Sequence[str] = (LAKELOG,),
        **environment: str,
    ) -> None:
        self._process = subprocess.Popen(
            [*inside, *program, "table", "sync", *words, "-b", bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"NO_COLOR": "1", "PYTHONPATH": python_path()} | environment,
        )

    def end(self) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        try:
            out, err = self._process.communicate(timeout=TIMEOUT_S)
        finally:
            self._process.kill()
        return self._process.returncode, out, err

    def result(self) -> Any:
        status, out, err = self.end()
        assert status == 0, err
        assert "Traceback" not in err
        (document,) = json.loads(out)
        return document

    def first_note(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def has_java(self) -> bool:
        """Return whether Spark's Java process runs; its script is replaced by it."""
        pid = self._process.pid
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        children = [child for task in tasks for child in task.read_text().split()]
        lines = [Path(f"/proc/{each}/cmdline").read_bytes() for each in children]
        return any(b"deploy.SparkSubmit" in line for line in lines)

    def terminate(self) -> None:
        self._process.terminate()

    def interrupt(self) -> None:
        """Send SIGINT to the process group, as ^C does."""
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate_group(self) -> None:
        """Send SIGTERM to Java and Python's workers as well, as `systemctl stop` does."""
        os.killpg(self._process.pid, signal.SIGTERM)
