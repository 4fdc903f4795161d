from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lakelog.metadata.controller.placement import place_replicas

_BROKERS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([None, "a", "b", "c"])),
    min_size=1,
    max_size=8,
    unique_by=lambda place: place[0],
)


@given(_BROKERS, st.integers(1, 30), st.data())
def test_replicas_are_distinct_and_leaders_spread(
    brokers: list[tuple[int, str | None]], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place_replicas(brokers, partitions, factor, data.draw(st.integers(0, 9)))
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(b, 0) for b, _ in brokers) <= 1


@given(_BROKERS, st.integers(1, 30), st.data())
def test_racks_differ_as_long_as_there_are_enough(
    brokers: list[tuple[int, str | None]], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    racks = dict(brokers)
    named = {rack for rack in racks.values() if rack is not None}
    if None in racks.values() or len(named) < factor:
        return
    for replicas in place_replicas(brokers, partitions, factor, 0):
        assert len({racks[broker] for broker in replicas}) == factor
