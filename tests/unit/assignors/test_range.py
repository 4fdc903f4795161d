from __future__ import annotations

from lakelog.assignors.member import Member
from lakelog.assignors.range import assign

AB = frozenset({"a", "b"})


def test_range_cuts_each_topic_by_itself() -> None:
    members = [Member("m2", AB), Member("m1", AB)]
    assert assign(members, {"a": 3, "b": 3}) == {
        "m1": {"a": [0, 1], "b": [0, 1]},
        "m2": {"a": [2], "b": [2]},
    }


def test_the_first_members_get_the_partitions_that_are_left_over() -> None:
    members = [Member(name, frozenset({"a"})) for name in ("m1", "m2", "m3")]
    assert assign(members, {"a": 8}) == {
        "m1": {"a": [0, 1, 2]},
        "m2": {"a": [3, 4, 5]},
        "m3": {"a": [6, 7]},
    }


def test_a_topic_is_divided_among_its_subscribers_only() -> None:
    members = [Member("m1", frozenset({"a"})), Member("m2", AB)]
    assert assign(members, {"a": 2, "b": 2}) == {
        "m1": {"a": [0]},
        "m2": {"a": [1], "b": [0, 1]},
    }


def test_topics_that_do_not_exist_or_have_no_subscriber_are_ignored() -> None:
    assert assign([Member("m1", AB)], {"b": 1, "c": 3}) == {"m1": {"b": [0]}}
    assert assign([], {"a": 1}) == {}
