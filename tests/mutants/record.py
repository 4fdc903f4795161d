"""Explanations of survivors, and the page that records a run."""

from __future__ import annotations

import datetime
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from mutants.mutations import Mutant
from mutants.nearest import PACKAGES, package_of
from mutants.trial import Verdict

_EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
_Name = tuple[str, str, str]


@cache
def _reasons() -> dict[_Name, str]:
    """By path, line as it was and line as it became."""
    entries = tomllib.loads(_EQUIVALENTS.read_text())["equivalent"]
    return {(entry["path"], entry["was"], entry["became"]): entry["why"] for entry in entries}


def explained(mutant: Mutant) -> str:
    """Why no test can notice the mutant; empty if that is not known."""
    return _reasons().get((mutant.path, mutant.was, mutant.became), "")


def write_page(page: Path, verdicts: list[Verdict], count: int, seed: int) -> None:
    """Replace the text of the page below its mark."""
    head, mark, _ = page.read_text().partition("<!-- the last run -->\n")
    assert mark, f"{page} has no mark to write below"
    page.write_text(head + mark + "\n".join(_lines(verdicts, count, seed)) + "\n")


def _lines(verdicts: list[Verdict], count: int, seed: int) -> list[str]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    all_of, survived, timeouts = Counter[str](), Counter[str](), Counter[str]()
    for verdict in verdicts:
        package = package_of(Path(verdict.mutant.path))
        all_of[package] += 1
        survived[package] += verdict.survived
        timeouts[package] += verdict.by == "timeout"
    lines = [
        "",
        f"{today}, `make mutants MUTANTS={count} SEED={seed}`:",
        "",
        "| package | mutants | killed | of these by the time limit | survived |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, *numbers in [
        *((name, all_of[name], survived[name], timeouts[name]) for name in PACKAGES),
        ("all", all_of.total(), survived.total(), timeouts.total()),
    ]:
        mutants, alive, late = numbers
        lines.append(f"| {name} | {mutants} | {mutants - alive} | {late} | {alive} |")
    lines += ["", "## Survivors", ""]
    for verdict in verdicts:
        if verdict.survived:
            mutant = verdict.mutant
            lines += [
                f"- `{mutant.path}`, `{mutant.function}`: `{mutant.was}` became `{mutant.became}`.",
                f"  {explained(mutant) or 'No test notices it yet.'}",
            ]
    return lines
