from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.assignors import (
    ASSIGNORS,
    Assignment,
    Member,
    assign_range,
    assign_roundrobin,
    assign_uniform,
    in_order,
)

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


NO_TOPICS = frozenset[str]()


def _order(*members: tuple[str, str | None]) -> list[str]:
    return [m.member_id for m in in_order([Member(name, NO_TOPICS, own) for name, own in members])]


def test_static_members_come_first_by_their_static_ids() -> None:
    """KIP-345: their member ids change with each restart, their ids do not."""
    assert _order(("a", None), ("z", "first"), ("b", "second")) == ["z", "b", "a"]


def test_dynamic_members_come_in_the_order_of_their_ids_as_java_sorts_them() -> None:
    assert _order(("b", None), ("a-10", None), ("a-9", None), ("B", None)) == [
        "B", "a-10", "a-9", "b",
    ]  # fmt: skip


def test_the_order_does_not_depend_on_the_order_of_joining() -> None:
    members = [("c", None), ("a", "x"), ("b", None)]
    assert _order(*members) == _order(*reversed(members))


def test_range_cuts_each_topic_by_itself() -> None:
    members = [Member("m2", AB), Member("m1", AB)]
    assert assign_range(members, {"a": 3, "b": 3}) == {
        "m1": {"a": [0, 1], "b": [0, 1]},
        "m2": {"a": [2], "b": [2]},
    }


def test_the_first_members_get_the_partitions_that_are_left_over() -> None:
    members = [Member(name, frozenset({"a"})) for name in ("m1", "m2", "m3")]
    assert assign_range(members, {"a": 8}) == {
        "m1": {"a": [0, 1, 2]},
        "m2": {"a": [3, 4, 5]},
        "m3": {"a": [6, 7]},
    }


def test_a_topic_is_divided_among_its_subscribers_only() -> None:
    members = [Member("m1", frozenset({"a"})), Member("m2", AB)]
    assert assign_range(members, {"a": 2, "b": 2}) == {
        "m1": {"a": [0]},
        "m2": {"a": [1], "b": [0, 1]},
    }


def test_topics_that_do_not_exist_or_have_no_subscriber_are_ignored() -> None:
    assert assign_range([Member("m1", AB)], {"b": 1, "c": 3}) == {"m1": {"b": [0]}}
    assert assign_range([], {"a": 1}) == {}


def test_round_robin_deals_over_topics() -> None:
    members = [Member("m2", AB), Member("m1", AB)]
    assert assign_roundrobin(members, {"a": 3, "b": 3}) == {
        "m1": {"a": [0, 2], "b": [1]},
        "m2": {"a": [1], "b": [0, 2]},
    }


def test_round_robin_skips_members_that_did_not_subscribe() -> None:
    members = [Member("m1", frozenset({"a"})), Member("m2", AB), Member("m3", AB)]
    assert assign_roundrobin(members, {"a": 1, "b": 2}) == {
        "m1": {"a": [0]},
        "m2": {"b": [0]},
        "m3": {"b": [1]},
    }


def test_a_turn_is_not_lost_with_a_topic_that_does_not_exist() -> None:
    members = [Member("m1", AB), Member("m2", AB)]
    assert assign_roundrobin(members, {"b": 2}) == {"m1": {"b": [0]}, "m2": {"b": [1]}}
    assert assign_roundrobin([], {"b": 2}) == {}


TOPICS = "abcd"
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
SUBSCRIPTION = st.frozensets(st.sampled_from(TOPICS))
IDS = st.lists(st.integers(0, 30), min_size=1, max_size=7, unique=True)


def members(ids: list[int], topics: list[frozenset[str]]) -> list[Member]:
    return [Member(f"m{i}", topics[n % len(topics)]) for n, i in enumerate(ids)]


def owners(assignment: Assignment) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    for member_id, topics in assignment.items():
        for topic, partitions in topics.items():
            assert partitions, "an empty topic is left out"
            for partition in partitions:
                assert found.setdefault((topic, partition), member_id) == member_id, "two owners"
    return found


def loads(assignment: Assignment) -> dict[str, int]:
    return {member: sum(map(len, topics.values())) for member, topics in assignment.items()}


def check(group: list[Member], counts: dict[str, int], result: Assignment) -> None:
    """Every subscribed partition has one owner, which subscribes to it."""
    subscribed = frozenset[str]().union(*(member.topics for member in group))
    wanted = {(t, p) for t, count in counts.items() if t in subscribed for p in range(count)}
    assert owners(result).keys() == wanted
    topics = {member.member_id: member.topics for member in group}
    assert result.keys() == topics.keys()
    assert all(topic in topics[owner] for (topic, _), owner in owners(result).items())


@given(IDS, SUBSCRIPTION, COUNTS)
def test_numbers_differ_by_one_at_most(
    ids: list[int], topics: frozenset[str], counts: dict[str, int]
) -> None:
    group = members(ids, [topics])
    result = assign_uniform(group, counts, {})
    check(group, counts, result)
    assert max(loads(result).values()) - min(loads(result).values()) <= 1


@given(IDS, IDS, SUBSCRIPTION, COUNTS, COUNTS)
def test_nothing_moves_that_need_not(
    before: list[int],
    after: list[int],
    topics: frozenset[str],
    old_counts: dict[str, int],
    counts: dict[str, int],
) -> None:
    """A member keeps as many partitions as any balanced assignment allows."""
    current = assign_uniform(members(before, [topics]), old_counts, {})
    group = members(after, [topics])
    result = assign_uniform(group, counts, current)
    check(group, counts, result)
    was, now = owners(current), owners(result)
    held = {
        each: sum(1 for key in now if was.get(key) == each) for each in (m.member_id for m in group)
    }
    kept = sum(1 for key, owner in now.items() if was.get(key) == owner)
    quota, extra = divmod(len(now), len(group))
    most = sorted(held.values(), reverse=True)
    possible = sum(min(have, quota + (rank < extra)) for rank, have in enumerate(most))
    assert kept == possible


@given(IDS, SUBSCRIPTION, COUNTS)
def test_the_same_again_changes_nothing(
    ids: list[int], topics: frozenset[str], counts: dict[str, int]
) -> None:
    group = members(ids, [topics])
    once = assign_uniform(group, counts, {})
    assert assign_uniform(group, counts, once) == once


@given(IDS, st.lists(SUBSCRIPTION, min_size=2, max_size=4), COUNTS, IDS)
def test_with_different_subscriptions_no_single_move_would_be_fairer(
    ids: list[int], topics: list[frozenset[str]], counts: dict[str, int], before: list[int]
) -> None:
    current = assign_uniform(members(before, topics[:1]), counts, {})
    group = members(ids, topics)
    result = assign_uniform(group, counts, current)
    check(group, counts, result)
    load = loads(result)
    for (topic, _), owner in owners(result).items():
        for member in group:
            if topic in member.topics:
                assert load[owner] - load[member.member_id] <= 1
    assert assign_uniform(group, counts, result) == result


def test_a_topic_is_spread_over_all() -> None:
    group = members([1, 2], [frozenset("ab")])
    result = assign_uniform(group, {"a": 2, "b": 2}, {})
    assert result == {"m1": {"a": [0], "b": [0]}, "m2": {"a": [1], "b": [1]}}


def test_a_partition_with_two_owners_goes_to_the_first() -> None:
    group = members([1, 2], [frozenset("a")])
    current: Assignment = {"m1": {"a": [0, 1]}, "m2": {"a": [0, 1]}}
    result = assign_uniform(group, {"a": 2}, current)
    assert owners(result).keys() == {("a", 0), ("a", 1)}


def test_without_members_there_is_no_assignment() -> None:
    assert assign_uniform([], {"a": 3}, {}) == {}
