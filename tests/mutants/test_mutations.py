"""Which places are changed, and how."""

from __future__ import annotations

from mutants.mutations import mutants_of

SOURCE = """
LIMIT = 3


def kept(log: "Log[1]", n: int = 2) -> bool:
    assert n > 0
    while log.more and n <= 4:
        n += 1
        if not log.is_open or (
            n is None
        ):
            continue
        log.sync(
            n, strict=True
        )
        logger.info("at %d", n + 1)
    return min(n, 5) == n
"""

CHANGES = [
    ("while log.more and n <= 4:", "while log.more or n <= 4:"),
    ("while log.more and n <= 4:", "while log.more and n < 4:"),
    ("while log.more and n <= 4:", "while log.more and n <= 5:"),
    ("n += 1", "n -= 1"),
    ("n += 1", "n += 2"),
    ("if not log.is_open or (", "if  log.is_open or ("),
    ("if not log.is_open or (", "if not log.is_open and ("),
    ("n is None", "n is not None"),
    ("continue", "break"),
    ("log.sync(", "pass"),
    ("return min(n, 5) == n", "return max(n, 5) == n"),
    ("return min(n, 5) == n", "return min(n, 6) == n"),
    ("return min(n, 5) == n", "return min(n, 5) != n"),
]


def test_each_place_is_changed_once() -> None:
    found = mutants_of("a.py", SOURCE)
    assert [(mutant.was, mutant.became) for mutant in found] == CHANGES
    assert {mutant.function for mutant in found} == {"kept"}


def test_what_is_changed_is_still_a_program() -> None:
    for mutant in mutants_of("a.py", SOURCE):
        compile(mutant.applied(SOURCE), "a.py", "exec")
        assert mutant.applied(SOURCE) != SOURCE
