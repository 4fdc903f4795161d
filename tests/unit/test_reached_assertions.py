"""The count of assertions that the simulation reaches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import reached_assertions
from reached_assertions import counting

SOURCE = b"""
def share(whole, parts):
    assert parts > 0, "someone gets a share"
    if whole > 10:
        assert whole < 100
    return whole // parts
"""


@pytest.fixture(autouse=True)
def _own_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reached_assertions, "declared", set())


def test_each_assertion_is_declared_and_counted_before_it_is_checked() -> None:
    seen: list[str] = []
    module: dict[str, Any] = {"__lakelog_reached__": seen.append}
    exec(compile(counting(SOURCE, "a.py"), "a.py", "exec"), module)
    assert reached_assertions.declared == {"a.py:3", "a.py:5"}
    assert module["share"](8, 2) == 4
    assert seen == ["a.py:3"]
    with pytest.raises(AssertionError, match="a share"):
        module["share"](8, 0)
    assert seen == ["a.py:3", "a.py:3"]


def test_a_report_names_the_assertions_that_nothing_has_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    key = "lakelog/replica/watermark.py:1"
    assert reached_assertions._report({key}, Counter())
    assert f"replica: 0 of 1 reached\n    {key}: " in capsys.readouterr().out
    assert not reached_assertions._report({key}, Counter({key: 2}))
