from __future__ import annotations

from lakelog.assignors.member import Member
from lakelog.assignors.roundrobin import assign

AB = frozenset({"a", "b"})


def test_round_robin_deals_over_topics() -> None:
    members = [Member("m2", AB), Member("m1", AB)]
    assert assign(members, {"a": 3, "b": 3}) == {
        "m1": {"a": [0, 2], "b": [1]},
        "m2": {"a": [1], "b": [0, 2]},
    }


def test_round_robin_skips_members_that_did_not_subscribe() -> None:
    members = [Member("m1", frozenset({"a"})), Member("m2", AB), Member("m3", AB)]
    assert assign(members, {"a": 1, "b": 2}) == {
        "m1": {"a": [0]},
        "m2": {"b": [0]},
        "m3": {"b": [1]},
    }


def test_a_turn_is_not_lost_with_a_topic_that_does_not_exist() -> None:
    members = [Member("m1", AB), Member("m2", AB)]
    assert assign(members, {"b": 2}) == {"m1": {"b": [0]}, "m2": {"b": [1]}}
    assert assign([], {"b": 2}) == {}
