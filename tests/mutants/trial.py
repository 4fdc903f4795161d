"""Judges mutants in forks of one pytest process that has imported and collected everything.

A fork replaces the code of the mutant's function in memory, and runs the tests that call it up to
the first failure. The sources on disk do not change, and no fork sees the mutant of another one.
Values that a module computed with the function at its import stay.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, NamedTuple

import pytest

from lakelog.records.flat import LINES
from mutants.calls import Calls
from mutants.mutations import Mutant
from mutants.nearest import Note, limit_s, tests_for

_MEMORY_MAX = 16 << 30
"""Address space of one fork, in bytes: a mutant may ask for anything."""


class Verdict(NamedTuple):
    """`by` is the test that failed, or `timeout`; empty if the mutant survived."""

    mutant: Mutant
    by: str
    tests: int
    """How many were to judge it."""
    seconds: float

    @property
    def survived(self) -> bool:
        return not self.by


class _Fork(NamedTuple):
    mutant: Mutant
    tests: int
    begin: float
    failed: IO[str]
    """The file for the name of the failed test, which the fork writes."""


@dataclass(slots=True, eq=False)
class Trials:
    """A plugin of pytest that runs the tests once per mutant, and calls `judged` with the verdict.

    Raises `RuntimeError` from `pytest.main` if a test fails without a mutant.
    """

    root: Path
    mutants: list[Mutant]
    processes: int
    total_s: float
    """Of the tests of one mutant, in seconds."""
    calls: Calls
    judged: Callable[[Verdict], None]
    _failed: IO[str] | None = None
    _forks: dict[int, _Fork] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        notes = self._notes(session)
        for mutant in self.mutants:
            if len(self._forks) >= self.processes:
                self._wait()
            names = tests_for(mutant, notes, self.total_s)
            self._start(session, mutant, [items[name] for name in names], notes)
        while self._forks:
            self._wait()
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._failed is not None and report.failed:
            self._fail(report.nodeid)

    def _notes(self, session: pytest.Session) -> dict[str, Note]:
        rest = self.calls.unknown(session.items)
        if rest:
            read, write = os.pipe()
            if not (pid := os.fork()):
                self._become_fork(session, write)
                with self._exiting():
                    for item in rest:
                        with self.calls.noting(item):
                            _run(item)
                        self.calls.write_at_times()
                    self.calls.write()
            failed = _result(pid, read, write)
            if failed:
                raise RuntimeError(f"without a mutant {failed} fails")
            self.calls.reload()
        return self.calls.read()

    def _start(
        self,
        session: pytest.Session,
        mutant: Mutant,
        items: list[pytest.Item],
        notes: dict[str, Note],
    ) -> None:
        read, write = os.pipe()
        begin = time.monotonic()
        if pid := os.fork():
            os.close(write)
            self._forks[pid] = _Fork(mutant, len(items), begin, os.fdopen(read))
            return
        self._become_fork(session, write)
        with self._exiting():
            put_into_memory(mutant, self.root)
            for item, following in zip(items, [*items[1:], None], strict=False):
                signal.setitimer(signal.ITIMER_REAL, limit_s(notes[item.nodeid]))
                _run(item, following)

    def _become_fork(self, session: pytest.Session, write: int) -> None:
        os.setsid()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))
        session.config.pluginmanager.unregister(name="terminalreporter")
        for flat in LINES:  # it contains the bodies of other functions, and does not call them
            flat.__code__ = flat.__wrapped__.__code__
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        self._failed = os.fdopen(write, "w")

    @contextlib.contextmanager
    def _exiting(self) -> Iterator[None]:
        """Ends the fork when its work is done, without what pytest does at the end of a session."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - the fork ends with it
            self._fail(repr(error))
        finally:
            os._exit(0)

    def _fail(self, by: str) -> None:
        assert self._failed is not None
        self._failed.write(by)
        self._failed.flush()
        os._exit(1)

    def _wait(self) -> None:
        pid, status = os.wait()
        fork = self._forks.pop(pid)
        with fork.failed:
            by = _outcome(pid, status, fork.failed)
        self.judged(Verdict(fork.mutant, by, fork.tests, time.monotonic() - fork.begin))


def put_into_memory(mutant: Mutant, root: Path) -> None:
    """Replaces the code of the mutant's function, and of no other."""
    path = str(root / mutant.path)
    source = Path(path).read_text()
    was = list(_functions(compile(source, path, "exec", dont_inherit=True)))
    became = list(_functions(compile(mutant.applied(source), path, "exec", dont_inherit=True)))
    gc.unfreeze()  # otherwise the collector does not list the functions of loaded modules
    functions = [known for known in gc.get_objects() if isinstance(known, FunctionType)]
    for before, after in zip(was, became, strict=True):
        if before != after:
            found = [known for known in functions if known.__code__ == before]
            assert found, f"{before.co_qualname} of {path} is not in memory"
            for function in found:
                function.__code__ = after


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The outermost functions of a module or a class body, in their order."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & CO_OPTIMIZED:
                yield constant
            else:
                yield from _functions(constant)


def _run(item: pytest.Item, following: pytest.Item | None = None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _result(pid: int, read: int, write: int) -> str:
    os.close(write)
    with os.fdopen(read) as failed:
        return _outcome(pid, os.waitpid(pid, 0)[1], failed)


def _outcome(pid: int, status: int, failed: IO[str]) -> str:
    """The test that failed, `timeout`, or nothing. Ends what processes the fork has left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    return "timeout" if code == -signal.SIGALRM else failed.read() or f"exit status {code}"
