from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.assignors import ASSIGNORS, Member

AB = frozenset({"a", "b"})


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_static_members_keep_their_place(name: str) -> None:
    before = [Member("z", AB, "one"), Member("a", AB, "two"), Member("b", AB)]
    after = [Member("q", AB, "one"), Member("r", AB, "two"), Member("b", AB)]
    counts = {"a": 7, "b": 2}
    one, two = ASSIGNORS[name](before, counts), ASSIGNORS[name](after, counts)
    assert (one["z"], one["a"], one["b"]) == (two["q"], two["r"], two["b"])


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_more_members_than_partitions(name: str) -> None:
    members = [Member("m1", AB), Member("m2", AB), Member("m3", AB)]
    assert ASSIGNORS[name](members, {"a": 1}) == {"m1": {"a": [0]}, "m2": {}, "m3": {}}


topics = st.frozensets(st.sampled_from("abcd"))


@given(
    name=st.sampled_from(sorted(ASSIGNORS)),
    subscriptions=st.lists(topics, max_size=6),
    counts=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)),
)
def test_every_partition_has_exactly_one_owner_that_asked_for_it(
    name: str, subscriptions: list[frozenset[str]], counts: dict[str, int]
) -> None:
    members = [Member(f"m{index}", wanted) for index, wanted in enumerate(subscriptions)]
    assignment = ASSIGNORS[name](members, counts)
    assert assignment.keys() == {member.member_id for member in members}
    dealt = [
        (topic, partition)
        for owned in assignment.values()
        for topic, partitions in owned.items()
        for partition in partitions
    ]
    wanted = frozenset[str]().union(*subscriptions)
    expected = [(t, p) for t, count in counts.items() if t in wanted for p in range(count)]
    assert sorted(dealt) == sorted(expected)
    for member in members:
        assert assignment[member.member_id].keys() <= member.topics
