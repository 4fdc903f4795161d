"""One mutant in a copy of the sources, and the tests that run against it.

The copy is imported by `PYTHONPATH`, so that nothing else sees a mutant. Its byte code is checked
by the hash of the source: a change within the same second and of the same size counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mutants.mutations import Mutant
from mutants.nearest import SUITE, Notes, limit_s, tests_for

_MEMORY_MAX = 16 << 30
"""Address space of one run, in bytes: a mutant may ask for anything."""
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "mutants.calls"),
    *("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"),
)
_FIRST_RUN_S = 3600.0


class Verdict(NamedTuple):
    """`by` is the test that failed, or `timeout`; empty if the mutant survived."""

    mutant: Mutant
    by: str
    tests: int
    """How many call the function."""
    seconds: float

    @property
    def survived(self) -> bool:
        return not self.by


@dataclass(slots=True)
class Laboratory:
    """A copy of the sources below `copy`, for one mutant at a time."""

    root: Path
    copy: Path

    @classmethod
    def made(cls, root: Path, copy: Path) -> Laboratory:
        shutil.rmtree(copy, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "src", copy / "src", ignore=ignored)
        command = ("-m", "compileall", "-q", "--invalidation-mode=checked-hash", "src")
        subprocess.run([sys.executable, *command], cwd=copy, check=True)
        return cls(root, copy)

    def notes(self) -> Notes:
        """What each test of the suite calls. Raises `RuntimeError` if one fails."""
        target = self.copy / "calls.json"
        failed = self._run(SUITE, _FIRST_RUN_S, {"MUTANTS_NOTE": str(target)})
        if failed:
            raise RuntimeError(f"without a mutant {failed} fails")
        notes: Notes = json.loads(target.read_text())
        return notes

    def judge(self, mutant: Mutant, notes: Notes) -> Verdict:
        begin = time.monotonic()
        target = self.copy / mutant.path
        source = target.read_text()
        target.write_text(mutant.applied(source))
        tests = tests_for(mutant, notes)
        try:
            by = self._first_failure(tests, limit_s(tests, notes)) if tests else ""
        finally:
            target.write_text(source)
        return Verdict(mutant, by, len(tests), time.monotonic() - begin)

    def _first_failure(self, tests: list[str], limit_s: float) -> str:
        chosen = self.copy / "chosen.json"
        chosen.write_text(json.dumps(tests))
        files = dict.fromkeys(name.partition("::")[0] for name in tests)
        return self._run(files, limit_s, {"MUTANTS_ONLY": str(chosen)})

    def _run(self, arguments: Iterable[str], limit_s: float, settings: dict[str, str]) -> str:
        """The test that failed, `timeout`, or nothing."""
        paths = os.pathsep.join((str(self.copy / "src"), str(self.root / "tests")))
        process = subprocess.Popen(
            [sys.executable, *_PYTEST, *arguments],
            cwd=self.root,
            env={**os.environ, **settings, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
        try:
            text, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode == 0:
            return ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
        return failed[1] if failed is not None else f"exit status {process.returncode}"


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))
