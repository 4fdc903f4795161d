"""docs/monitoring.md names every metric there is, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.metrics import Family
from lakelog.server.monitoring.families import COMPAT, DETAIL, OVERVIEW

PAGE = Path(__file__).parents[4] / "docs" / "monitoring.md"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind.value} | {labels} | {family.help} |"


@pytest.mark.parametrize(
    ("heading", "families"),
    [("Metrics", OVERVIEW), ("Detail", DETAIL), ("Names of other exporters", COMPAT)],
)
def test_each_table_is_that_of_the_code(heading: str, families: dict[str, Family]) -> None:
    section = PAGE.read_text(encoding="utf-8").partition(f"# {heading}\n")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [_row(family) for family in families.values()]
