"""The `lakelog` command as a user runs it, in a pipe or on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker_process import LAKELOG

_TIMEOUT_S = 120
PATIENT = ("--timeout", "60s")
"""Before the words of a command that must succeed, also while a cluster chooses a leader."""


class Shell:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = os.environ | {"LAKELOG_BROKERS": bootstrap, "NO_COLOR": "1"}

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a command, which is `PATIENT` unless its words have a `--timeout`."""
        patience = () if "--timeout" in words else PATIENT
        return subprocess.run(
            [LAKELOG, *patience, *words],
            input=given,
            capture_output=True,
            env=self.environment,
            timeout=_TIMEOUT_S,
            check=False,
        )

    def out(self, *words: str, given: bytes = b"") -> bytes:
        """Return the stdout of a command that must succeed."""
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def json(self, *words: str) -> list[Any]:
        rows = json.loads(self.out(*words, "--format", "json"))
        assert isinstance(rows, list)
        return rows

    def one(self, *words: str) -> Any:
        """The only thing in the array that a command prints."""
        (row,) = self.json(*words)
        return row

    def refusal(self, *words: str, given: bytes = b"") -> tuple[int, str, str]:
        """Exit status, code, and message with hint, of a command that must print nothing else."""
        done = self.run(*words, given=given)
        assert done.stdout == b""
        match = re.match(r"error\[(LL\d{4})\] (.+\nhint: .+)\n$", done.stderr.decode())
        assert match is not None, done.stderr.decode()
        return done.returncode, match[1], match[2]


def until_it_waits(shell: Shell, script: str, folder: Path) -> tuple[str, bytes]:
    """Run a command by bash on a terminal until it waits for new records, then end it with ^C.

    Return its messages on the terminal and its stdout.
    """
    ours, theirs = pty.openpty()
    words = ["bash", "-c", f"exec {script}"]
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=theirs,
            env=shell.environment,
            cwd=folder,
        )
    os.close(theirs)
    said = b""
    try:
        with suppress(OSError):
            while b"waiting for" not in said:
                said += os.read(ours, 65536)
        assert b"waiting for" in said, said.decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(_TIMEOUT_S) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return said.decode(), (folder / "printed").read_bytes()


def on_a_terminal(shell: Shell, *words: str, **environment: str) -> str:
    """Return the output of a command to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in shell.environment.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [LAKELOG, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=plain | {"TERM": "xterm-256color", "COLUMNS": "80"} | environment,
    ):
        os.close(theirs)
        said = b""
        with suppress(OSError):  # Linux: the other end is closed
            while some := os.read(ours, 65536):
                said += some
    os.close(ours)
    return said.decode()
