"""The results of the checkers of one world: violated laws, and counts of observations."""

from __future__ import annotations

from collections import Counter

from simulator.checkers.laws import Law


class Findings:
    """A run has failed if `violations`, which are texts, is not empty."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.broken: set[Law] = set()
        self.counts: Counter[str] = Counter()
        """How often each kind of observation was made: without observations a check is void."""

    def violation(self, law: Law, text: str) -> None:
        """Record that a law is broken; repeated texts are recorded once."""
        self.broken.add(law)
        if text not in self.violations:
            self.violations.append(text)

    def expect(self, law: Law, condition: bool, text: str) -> None:
        """Record a violation unless the condition holds."""
        if not condition:
            self.violation(law, text)
