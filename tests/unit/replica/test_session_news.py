from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lakelog.replica.followers import Follower
from lakelog.replica.purgatory import Purgatory
from lakelog.replica.session_news import READ_PER_ITERATION, SessionNews

LAG_MAX_MS = 1000


def make(count: int) -> tuple[Purgatory, SessionNews]:
    loop: Any = SimpleNamespace(add=lambda part: None, want=lambda: None)
    purgatory = Purgatory(loop, loop, loop)
    return purgatory, SessionNews(purgatory, [("t", index) for index in range(count)])


def indexes(news: SessionNews) -> list[int]:
    return [index for _, index in news.due()]


def settle_all(news: SessionNews, follower: Follower | None = None) -> None:
    for news_key in news.due():
        news.conclude(news_key, ("key", news_key[1]), follower)


def test_an_event_makes_a_settled_partition_due_again() -> None:
    purgatory, news = make(3)
    assert indexes(news) == [0, 1, 2]
    settle_all(news)
    assert indexes(news) == []
    purgatory.check(("key", 1))
    purgatory.check_soon(("key", 0))
    purgatory.check(("key", 1))
    assert indexes(news) == [1, 0]


def test_watched_partitions_are_read_in_turn() -> None:
    _, news = make(3 * READ_PER_ITERATION)
    settle_all(news)
    read: list[int] = []
    for _ in range(3):
        news.note_request()
        assert len(news.due()) == READ_PER_ITERATION
        read += indexes(news)
        settle_all(news)
    assert read == list(range(3 * READ_PER_ITERATION))


def test_a_closed_or_removed_partition_leaves_nothing_in_the_purgatory() -> None:
    purgatory, news = make(3)
    settle_all(news)
    news.remove(("t", 1))
    purgatory.check(("key", 1))
    assert indexes(news) == []
    news.close()
    assert not purgatory._watchers


def test_a_follower_of_an_idle_partition_is_caught_up_at_each_request_of_its_session() -> None:
    purgatory, news = make(1)
    follower = Follower(0)
    follower.note_fetch(1, 5, 5, 0)
    settle_all(news, follower)
    news.fetched_ms = 60_000
    assert not follower.lags(6, 60_000 + LAG_MAX_MS, LAG_MAX_MS)
    assert follower.lags(6, 60_001 + LAG_MAX_MS, LAG_MAX_MS)
    purgatory.check(("key", 0))
    news.fetched_ms = 90_000
    assert follower.lags(6, 90_000, LAG_MAX_MS), "a request after the append proves nothing yet"


def test_an_older_session_does_not_count_for_a_follower_in_a_newer_one() -> None:
    purgatory, old = make(1)
    follower = Follower(0)
    settle_all(old, follower)
    newer = SessionNews(purgatory, old.due() or [("t", 0)])
    settle_all(newer, follower)
    old.fetched_ms = 60_000
    old.close()
    assert follower.idle_in is newer
    follower.end_offset = 5
    assert follower.lags(6, 60_000, LAG_MAX_MS)
