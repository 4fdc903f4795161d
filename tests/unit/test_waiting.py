"""A wait returns the awaited value, and names the event that did not come."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from virtual_time import run_in_virtual_time
from waiting import EventTimeoutError, eventually, until

pytestmark = [pytest.mark.xdist_group("trees")]

_TESTS = Path(__file__).parents[1]


def test_a_wait_returns_the_first_true_value() -> None:
    values = iter([0, None, 7, 8])
    assert eventually(lambda: next(values), every_s=0) == 7


def test_a_failed_wait_names_the_source_of_its_condition_and_the_last_value() -> None:
    brokers: list[int] = []
    with pytest.raises(EventTimeoutError) as caught:
        eventually(
            lambda: brokers,
            0,
        )
    assert str(caught.value) == "waited 0 s for: brokers; the last look found []"


def test_a_source_with_wide_characters_is_named_in_full() -> None:
    with pytest.raises(EventTimeoutError, match="for: 'é€' == 'x'; the last look found False"):
        "é€", eventually(lambda: "é€" == "x", 0)  # type: ignore[comparison-overlap]


def test_a_failed_wait_names_a_described_event() -> None:
    seen: list[int] = []
    with pytest.raises(EventTimeoutError, match=r"for: the marker; .* False"):
        eventually(lambda: False, 0, "the marker")
    with pytest.raises(EventTimeoutError, match="for: 1 look; "):
        eventually(lambda: seen.append(1), 0, lambda: f"{len(seen)} look")


def _broken() -> bool:
    raise OSError("no route")


def test_a_passing_error_does_not_end_a_wait_and_the_last_one_is_named() -> None:
    with pytest.raises(EventTimeoutError, match=r"for: _broken; .*OSError\('no route'\)") as caught:
        eventually(_broken, 0, passing=lambda error: "route" in str(error))
    assert isinstance(caught.value.__cause__, OSError)


def test_any_other_error_ends_a_wait() -> None:
    with pytest.raises(OSError, match="no route"):
        eventually(_broken)
    with pytest.raises(OSError, match="no route"):
        eventually(_broken, passing=lambda error: "disk" in str(error))


def test_a_coroutine_waits_in_the_time_of_its_loop() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        begun = loop.time()
        with pytest.raises(EventTimeoutError, match=r"for: loop.time\(\) < begun; .* False"):
            await until(lambda: loop.time() < begun, 3600.0, every_s=1.0)
        assert loop.time() == begun + 3600.0

    run_in_virtual_time(scenario)


def test_a_coroutine_waits_for_a_value_of_a_coroutine() -> None:
    values = iter([0, 7])

    async def look() -> int:
        return next(values)

    async def scenario() -> int:
        return await until(look, every_s=0)

    assert asyncio.run(scenario()) == 7


def test_a_coroutine_names_a_condition_that_is_a_coroutine() -> None:
    async def look() -> None:
        raise OSError("no route")

    async def scenario() -> None:
        with pytest.raises(EventTimeoutError, match="for: look; "):
            await until(look, 0, passing=lambda _: True)

    asyncio.run(scenario())


_MODELS = ("simulator", "spark/faults", "waiting.py")
"""A simulated network that is cut, a Spark worker that a test holds, and the one helper itself."""
_SLEEPS = ("time.sleep(", "asyncio.sleep(", "os.sched_yield(", "threading.Event().wait(")


def _own_waits(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of loops that wait by themselves: they only sleep, or fail at a deadline."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.While) and (all(map(_sleeps, loop.body)) or _has_deadline(loop)):
            yield loop.lineno


def _sleeps(statement: ast.stmt) -> bool:
    return ast.unparse(statement).removeprefix("await ").startswith(_SLEEPS)


def _has_deadline(loop: ast.While) -> bool:
    return any(
        isinstance(node, ast.If | ast.Assert) and "time.monotonic()" in ast.unparse(node.test)
        for node in ast.walk(loop)
    )


def test_no_test_waits_in_a_loop_of_its_own() -> None:
    """Use `waiting.eventually`, or `waiting.until` in a coroutine."""
    paths = {path.relative_to(_TESTS): path for path in _TESTS.rglob("*.py")}
    offenders = [
        f"{name}:{line}"
        for name, path in sorted(paths.items())
        if not name.as_posix().startswith(_MODELS) and "while " in (text := path.read_text())
        for line in _own_waits(ast.parse(text))
    ]
    assert not offenders, f"wait with `waiting.eventually` or `waiting.until`: {offenders}"


@pytest.mark.parametrize(
    ("code", "is_wait"),
    [
        ("while not done():\n    time.sleep(0.1)", True),
        ("async def f():\n    while not done():\n        await asyncio.sleep(0)", True),
        ("while not done():\n    assert time.monotonic() < deadline\n    work()", True),
        ("while True:\n    if time.monotonic() > deadline: raise X\n    work()", True),
        ("while not stopping:\n    work()\n    time.sleep(0.1)", False),
        ("while time.monotonic() < end:\n    work()", False),
    ],
)
def test_loops_that_wait_are_recognised(code: str, is_wait: bool) -> None:
    assert bool(list(_own_waits(ast.parse(code)))) is is_wait
