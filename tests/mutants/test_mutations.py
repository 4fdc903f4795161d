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


def test_a_mutant_still_compiles() -> None:
    for mutant in mutants_of("a.py", SOURCE):
        compile(mutant.applied(SOURCE), "a.py", "exec")
        assert mutant.applied(SOURCE) != SOURCE


def test_a_mutant_keeps_its_name_when_other_lines_change() -> None:
    def names(source: str) -> set[str]:
        return {mutant.name for mutant in mutants_of("a.py", source)}

    longer = SOURCE.replace("while", "log.begin()\n    while")
    assert len(names(SOURCE)) == len(CHANGES)
    assert names(longer) - names(SOURCE) == {"a.py\nkept\nlog.begin()\npass\n0"}
    assert names(SOURCE) < names(longer)


def test_the_change_stays_when_the_module_moves() -> None:
    here, there = mutants_of("a.py", SOURCE), mutants_of("b/c.py", SOURCE)
    assert [mutant.change for mutant in here] == [mutant.change for mutant in there]
    assert not {mutant.name for mutant in here} & {mutant.name for mutant in there}


def test_places_that_are_alike_have_names_of_their_own() -> None:
    source = "def count(n: int) -> int:\n    n += 1\n    n += 1\n    return n\n"
    found = mutants_of("a.py", source)
    assert len({mutant.name for mutant in found}) == len(found) == 4
