from __future__ import annotations

from lakelog.storage.segments.checks import Checks


def test_a_range_that_was_just_checked_is_known_however_many_others_are() -> None:
    """A fetch waits until the range that it reads is known: forgotten at once, it never ends."""
    checks = Checks()
    for number in reversed(range(100)):
        start = number * 1000
        checks.add(start, start + 10, number)
        assert checks.covers(start, start + 10)
    assert len(checks.ranges) < 100
