"""Which finalized levels a broker supports."""

from __future__ import annotations

from lakelog.metadata.features import INITIAL, SUPPORTED, SupportedLevels, unsupported


def test_every_version_supports_the_levels_of_a_log_without_levels() -> None:
    assert unsupported(INITIAL, SUPPORTED) == []
    assert unsupported(INITIAL, ()) == []


def test_a_level_outside_of_the_range_is_named_with_the_range() -> None:
    assert unsupported({"lakelog.metadata.version": 2}, ()) == [
        "lakelog.metadata.version=2 (supported: 1 to 1)"
    ]
    assert unsupported({"a": 1, "b": 3}, (SupportedLevels("b", 1, 3),)) == ["a=1"]
