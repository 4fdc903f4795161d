"""The replica that an unclean election chooses. The commands run in `tests/system`."""

from __future__ import annotations

import pytest

from lakelog.cli.elections import Candidates, candidate_listing
from lakelog.client.admin.brokers import ReplicaEnd


def candidates(*ends: tuple[int, int] | None, preferred: tuple[int, ...] = ()) -> Candidates:
    numbered = enumerate(ends, 1)
    found = {number: ReplicaEnd(*end) for number, end in numbered if end is not None}
    return Candidates("t", 0, tuple(range(1, len(ends) + 1)), found, preferred)


@pytest.mark.parametrize(
    ("ends", "preferred", "best"),
    [
        ([(3, 5), (3, 9), (3, 7)], (), 2),
        ([(3, 90), (4, 9), (3, 95)], (), 2),
        ([None, None, (0, 1)], (), 3),
        ([(3, 5), (3, 5), (3, 5)], (), 1),
        ([(3, 5), (3, 5), (3, 5)], (2, 3), 3),
        ([(3, 6), (3, 5), None], (2, 3), 1),
        ([(-1, 0), None, None], (), 1),
        ([None, None], (), None),
    ],
    ids=["longest", "epoch", "only", "first", "latest", "longer", "empty", "none"],
)
def test_the_log_with_the_most_records_is_best(
    ends: list[tuple[int, int] | None], preferred: tuple[int, ...], best: int | None
) -> None:
    assert candidates(*ends, preferred=preferred).best == best


def test_the_listing_names_the_next_leader_and_missing_replicas() -> None:
    rows = candidate_listing([candidates((3, 5), None, (4, 6))]).rows
    assert [(row["replica"], row["last_epoch"], row["note"]) for row in rows] == [
        (1, 3, ""),
        (2, None, "no answer"),
        (3, 4, "would lead"),
    ]
