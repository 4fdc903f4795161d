"""What each broker showed, side by side in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokers import Broker
from tables import Table

Cells = Sequence[float | int | str]


def side_by_side(
    first: str,
    columns: Sequence[str],
    brokers: Sequence[Broker],
    found: Sequence[Mapping[str, Cells]],
) -> Table:
    """A row of each name and broker; `found` has the cells by name, broker by broker.

    What one of them lacks it has not come to.
    """
    lacking = "not reached", *[""] * (len(columns) - 1)
    rows = [
        [name, broker.name, *map(_text, cells.get(name, lacking))]
        for name in dict.fromkeys(name for cells in found for name in cells)
        for broker, cells in zip(brokers, found, strict=True)
    ]
    return Table([first, "broker", *columns], rows, len(brokers))


def _text(cell: float | int | str) -> str:
    if isinstance(cell, float):
        return f"{cell:,.2f}" if cell < 100 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
