from __future__ import annotations

from lakelog.coordinator.group.offsets.newcomers import Newcomer, in_order_of_eviction

_MINUTE_MS = 60_000


def _order(now_minutes: float, *newcomers: tuple[float, str]) -> list[str]:
    given = [Newcomer(int(minutes * _MINUTE_MS), name) for minutes, name in newcomers]
    return [each.group_id for each in in_order_of_eviction(given, int(now_minutes * _MINUTE_MS))]


def test_the_minute_of_a_flood_is_evicted_first_its_newest_group_before_the_others() -> None:
    flood = [(5.1, "a"), (5.2, "b"), (5.3, "c")]
    assert _order(60, (1.0, "before"), *flood, (9.0, "after")) == [
        "c",
        "b",
        "a",
        "after",
        "before",
    ]


def test_a_group_is_kept_for_a_minute_after_the_minute_in_which_it_came() -> None:
    """A client that commits once a minute has shown by then that its group is in use."""
    assert _order(7.1, (5.0, "a"), (5.9, "b")) == []
    assert _order(7.2, (5.0, "a"), (5.9, "b")) == ["b", "a"]


def test_nothing_is_evicted_while_the_flood_lasts() -> None:
    """Older groups are not sacrificed for groups of the current minute."""
    assert _order(7.2, (1.0, "old"), (7.0, "x"), (7.1, "y")) == []
