"""Positions of followers, and the decision which of them lag."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lakelog.replica.followers import Follower, Followers

LAG_MAX_MS = 30_000
EPOCH = 4


def fetched(follower: Follower, offset: int, leader_end: int, now_ms: int) -> None:
    follower.note_fetch(EPOCH, offset, leader_end, now_ms)


def test_a_follower_at_the_end_is_caught_up() -> None:
    follower = Follower(0)
    fetched(follower, 10, 10, 50_000)
    assert not follower.lags(10, 200_000, LAG_MAX_MS), "it has everything, however long ago"
    assert not follower.lags(11, 80_000, LAG_MAX_MS)
    assert follower.lags(11, 80_001, LAG_MAX_MS)


def test_a_follower_of_a_growing_log_is_caught_up_without_its_newest_record() -> None:
    """It has all records that the leader had at its last fetch."""
    follower = Follower(0)
    for number in range(1, 20):
        fetched(follower, 10 * (number - 1), 10 * number, 10_000 * number)
    assert not follower.lags(190, 210_000, LAG_MAX_MS)
    assert follower.lags(190, 210_001, LAG_MAX_MS)


def test_a_follower_that_fetches_and_stays_behind_lags() -> None:
    follower = Follower(0)
    for now_ms in range(0, 40_000, 1000):
        fetched(follower, now_ms // 1000, 1_000_000, now_ms)
    assert follower.lags(1_000_000, 40_000, LAG_MAX_MS)


def test_a_follower_has_time_to_fetch_when_a_leader_epoch_begins() -> None:
    followers = Followers()
    followers.begin((2, 3), now_ms=100_000)
    assert followers.lagging((2, 3), 7, 130_000, LAG_MAX_MS) == []
    assert followers.lagging((2, 3), 7, 130_001, LAG_MAX_MS) == [2, 3]
    assert followers.end((2, 3)) == -1, "no position of an earlier leader epoch counts"


def test_the_end_of_all_is_that_of_the_slowest() -> None:
    followers = Followers()
    followers.begin((2, 3, 4), 0)
    for node_id, offset in ((2, 10), (3, 7), (4, 3)):
        follower = followers.get(node_id)
        assert follower is not None
        fetched(follower, offset, 10, 0)
    assert (followers.end((2, 3)), followers.end((2, 3, 4))) == (7, 3)


def test_a_change_of_the_replicas_keeps_positions() -> None:
    followers = Followers()
    followers.begin((2, 3), 0)
    kept = followers.get(2)
    assert kept is not None
    fetched(kept, 10, 10, 0)
    followers.keep((2, 4), 1000)
    assert followers.get(2) is kept
    assert followers.get(3) is None
    assert followers.end((4,)) == -1


def test_an_unknown_broker_is_no_follower() -> None:
    followers = Followers()
    followers.begin((2,), 0)
    assert followers.get(9) is None
    with pytest.raises(KeyError):
        followers.end((9,))


def test_a_follower_is_mute_when_it_lacks_records_and_does_not_fetch() -> None:
    follower = Follower(0)
    assert not follower.is_mute(1, 10_000, 1000), (
        "its first fetch of a leader epoch may take a while"
    )
    fetched(follower, 3, 3, 10_000)
    assert not follower.is_mute(3, 20_000, 1000), "it lacks nothing"
    assert not follower.is_mute(4, 11_000, 1000)
    assert follower.is_mute(4, 11_001, 1000)
    fetched(follower, 3, 9, 11_500)
    assert not follower.is_mute(9, 12_000, 1000), "it fetches, however far it is behind"


def test_fetches_of_a_session_in_which_it_is_idle_count() -> None:
    follower = Follower(0)
    fetched(follower, 3, 3, 1000)
    follower.idle_in = SimpleNamespace(fetched_ms=5000)
    assert not follower.is_mute(4, 6000, 1000)
    assert follower.is_mute(4, 6001, 1000)
