"""Each module with behaviour has a unit test of its name; `unmirrored.txt` lists the exceptions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mirrored_tests import has_behaviour, mirror_of

pytestmark = [pytest.mark.xdist_group("trees")]

_PROJECT = Path(__file__).parents[2]
_SOURCE = _PROJECT / "src"
_EXCEPTIONS = Path(__file__).with_name("unmirrored.txt")


def _unmirrored() -> set[str]:
    return {
        path.relative_to(_SOURCE).as_posix()
        for path in (_SOURCE / "lakelog").rglob("*.py")
        if path.name != "__init__.py"
        and not mirror_of(path, _PROJECT).exists()
        and has_behaviour(ast.parse(path.read_text()))
    }


def _exceptions() -> list[str]:
    lines = (line.strip() for line in _EXCEPTIONS.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_each_module_with_behaviour_has_a_test_of_its_name() -> None:
    missing = sorted(_unmirrored().difference(_exceptions()))
    misplaced = [
        f"{name} has no {mirror_of(_SOURCE / name, _PROJECT).relative_to(_PROJECT).as_posix()}"
        for name in missing
    ]
    assert not misplaced, "\n".join(misplaced)


def test_the_exceptions_only_shrink() -> None:
    listed = _exceptions()
    assert listed == sorted(set(listed)), "one line for each, in order"
    stale = sorted(set(listed) - _unmirrored())
    assert not stale, f"remove from {_EXCEPTIONS.name}: " + ", ".join(stale)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("LIMIT = 3\nclass Message:\n    name: str", False),
        ("class Clock(Protocol):\n    def now(self) -> int: ...", False),
        (
            "class Clock(Protocol):\n    def now(self) -> int:\n        '''Text.'''\n        ...",
            False,
        ),
        ("def now():\n    return 3", True),
        ("class Clock:\n    async def now(self):\n        return 3", True),
    ],
)
def test_declarations_are_no_behaviour(code: str, expected: bool) -> None:
    assert has_behaviour(ast.parse(code)) is expected
