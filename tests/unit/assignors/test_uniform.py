from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.assignors import Assignment, Member
from lakelog.assignors.uniform import assign

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
    result = assign(group, counts, {})
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
    current = assign(members(before, [topics]), old_counts, {})
    group = members(after, [topics])
    result = assign(group, counts, current)
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
    once = assign(group, counts, {})
    assert assign(group, counts, once) == once


@given(IDS, st.lists(SUBSCRIPTION, min_size=2, max_size=4), COUNTS, IDS)
def test_with_different_subscriptions_no_single_move_would_be_fairer(
    ids: list[int], topics: list[frozenset[str]], counts: dict[str, int], before: list[int]
) -> None:
    current = assign(members(before, topics[:1]), counts, {})
    group = members(ids, topics)
    result = assign(group, counts, current)
    check(group, counts, result)
    load = loads(result)
    for (topic, _), owner in owners(result).items():
        for member in group:
            if topic in member.topics:
                assert load[owner] - load[member.member_id] <= 1
    assert assign(group, counts, result) == result


def test_a_topic_is_spread_over_all() -> None:
    group = members([1, 2], [frozenset("ab")])
    result = assign(group, {"a": 2, "b": 2}, {})
    assert result == {"m1": {"a": [0], "b": [0]}, "m2": {"a": [1], "b": [1]}}


def test_a_partition_with_two_owners_goes_to_the_first() -> None:
    group = members([1, 2], [frozenset("a")])
    current: Assignment = {"m1": {"a": [0, 1]}, "m2": {"a": [0, 1]}}
    result = assign(group, {"a": 2}, current)
    assert owners(result).keys() == {("a", 0), ("a", 1)}


def test_without_members_there_is_no_assignment() -> None:
    assert assign([], {"a": 3}, {}) == {}
