"""What the broker logs with a traceback is a bug, unless the simulation has killed it there."""

from __future__ import annotations

import logging
from types import TracebackType

from lakelog.testing.disk import DiskStopped
from lakelog.testing.simulation.checkers.findings import Findings
from lakelog.testing.simulation.checkers.laws import Law

_LOGGER = logging.getLogger("lakelog")


class LoggedErrors(logging.Handler):
    """Turns such records into violations while it is entered; other log lines go nowhere."""

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
        _LOGGER.setLevel(level)  # which also forgets what each logger has remembered of the level

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.judge(self._findings, record.getMessage(), record.exc_info[1])

    @staticmethod
    def judge(findings: Findings, text: str, error: BaseException | None) -> None:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, DiskStopped | OSError):
                return
            cause = cause.__cause__ or cause.__context__
        findings.violation(Law.NO_BUGS, f"{text}: {error!r}")
