"""Tracebacks in the log are violations, unless a failing or stopped disk caused them."""

from __future__ import annotations

import logging

import pytest

from doubles.disk import DiskStopped
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.logged_errors import LoggedErrors

logger = logging.getLogger("lakelog.server.anything")


def log_with_traceback(error: BaseException) -> None:
    try:
        raise error
    except BaseException:
        logger.exception("it failed")


def test_a_logged_traceback_is_a_violation() -> None:
    findings = Findings()
    with LoggedErrors(findings):
        log_with_traceback(KeyError("x"))
    assert findings.broken == {Law.NO_BUGS}
    assert findings.violations == ["it failed: KeyError('x')"]


@pytest.mark.parametrize("cause", [DiskStopped("write"), OSError(28, "full")])
def test_an_injected_fault_among_the_causes_excuses_it(cause: BaseException) -> None:
    findings = Findings()
    error = ValueError("half a file")
    error.__cause__ = cause
    with LoggedErrors(findings):
        log_with_traceback(error)
        logger.error("without a traceback")
    assert findings.violations == []


def test_the_logger_is_as_before_afterwards() -> None:
    root = logging.getLogger("lakelog")
    before = root.level, root.propagate, list(root.handlers)
    with LoggedErrors(Findings()):
        assert not root.propagate
    assert (root.level, root.propagate, list(root.handlers)) == before
