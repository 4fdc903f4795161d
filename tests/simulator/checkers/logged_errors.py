"""Tracebacks in the broker's log: each is a bug, unless an injected fault caused it."""

from __future__ import annotations

import logging
from types import TracebackType

from doubles.disk import DiskStopped
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law

_LOGGER = logging.getLogger("lakelog")


class LoggedErrors(logging.Handler):
    """Turns logged exceptions into violations for the time of a `with` block.

    It suppresses all other log lines meanwhile.
    """

    def __init__(self, findings: Findings) -> None:
        super().__init__(logging.ERROR)
        self._findings = findings

    def __enter__(self) -> LoggedErrors:
        self._before = _LOGGER.level, _LOGGER.propagate
        _LOGGER.addHandler(self)
        _LOGGER.setLevel(logging.ERROR)
        _LOGGER.propagate = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _LOGGER.removeHandler(self)
        level, _LOGGER.propagate = self._before
        _LOGGER.setLevel(level)  # also clears the level that each logger has cached

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.judge(self._findings, record.getMessage(), record.exc_info[1])

    @staticmethod
    def judge(findings: Findings, text: str, error: BaseException | None) -> None:
        """Record a violation unless a failing or stopped disk is among the causes of the error."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, DiskStopped | OSError):
                return
            cause = cause.__cause__ or cause.__context__
        findings.violation(Law.NO_BUGS, f"{text}: {error!r}")
