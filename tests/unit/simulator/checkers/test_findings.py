"""Violations and counts of one world."""

from __future__ import annotations

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law


def test_a_repeated_violation_is_recorded_once() -> None:
    findings = Findings()
    findings.violation(Law.KEPT, "offset 3 is lost")
    findings.violation(Law.KEPT, "offset 3 is lost")
    findings.violation(Law.KEPT, "offset 4 is lost")
    assert findings.violations == ["offset 3 is lost", "offset 4 is lost"]


def test_one_text_may_break_two_laws() -> None:
    findings = Findings()
    findings.violation(Law.KEPT, "offset 3 is lost")
    findings.violation(Law.DURABLE, "offset 3 is lost")
    assert findings.broken == {Law.KEPT, Law.DURABLE}


def test_only_a_false_condition_is_a_violation() -> None:
    findings = Findings()
    findings.expect(Law.KEPT, True, "kept")
    assert not findings.violations
    assert not findings.broken
    findings.expect(Law.KEPT, False, "lost")
    assert (findings.violations, findings.broken) == (["lost"], {Law.KEPT})
