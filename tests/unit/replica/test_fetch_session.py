"""KIP-227, table by table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.memory_budget import Share
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from lakelog.replica.fetch_session import LARGE, UNKNOWN_MAX, FetchPlan, FetchSessions
from lakelog.replica.purgatory import Purgatory


class CountingRandom:
    def __init__(self) -> None:
        self._next = 0

    def bytes(self, size: int) -> bytes:
        return bytes(size)

    def below(self, end: int) -> int:
        self._next += 1
        return self._next


NAMES = 12
IDS = 13


def request(
    session_id: int, epoch: int, partitions: dict[int, int] | None = None, topic: str = "t"
) -> FetchRequest:
    entries = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
        for partition, offset in (partitions or {}).items()
    ]
    topics = [FetchTopic(topic=topic, partitions=entries)] if entries else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


def is_known(topic: str | bytes, partition: int) -> bool:
    return topic == "t"


def offsets(plan: FetchPlan) -> dict[int, int]:
    return {target.partition: target.fetch_offset for target in plan.targets}


def report(plan: FetchPlan, partition: int, size: int, high_watermark: int, error: int = 0) -> bool:
    target = next(t for t in plan.targets if t.partition == partition)
    return plan.includes(target, error, size, high_watermark, 0)


def a_purgatory() -> Purgatory:
    """Return a purgatory without events."""
    loop: Any = SimpleNamespace(add=lambda part: None)
    return Purgatory(loop, loop, loop)


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(CountingRandom(), is_known, a_purgatory(), slots_max=2, share=Share())


def test_without_a_session_everything_is_answered(sessions: FetchSessions) -> None:
    plan = sessions.begin(request(0, -1, {0: 5}), NAMES, 0.0)
    assert (plan.session_id, offsets(plan)) == (0, {0: 5})
    assert report(plan, 0, 0, 5)
    assert len(sessions) == 0


def test_a_partition_asked_for_twice_is_read_once(sessions: FetchSessions) -> None:
    twice = request(0, -1, {0: 5})
    twice.topics += request(0, -1, {0: 9}).topics
    assert offsets(sessions.begin(twice, NAMES, 0.0)) == {0: 9}
    assert len(sessions.begin(twice, NAMES, 0.0).targets) == 1


def test_an_incremental_fetch_carries_only_what_changed(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, {0: 5, 1: 7}), NAMES, 0.0)
    assert full.session_id
    assert report(full, 0, 0, 5)
    assert report(full, 1, 0, 7)
    again = sessions.begin(request(full.session_id, 1), NAMES, 1.0)
    assert offsets(again) == {0: 5, 1: 7}
    assert not report(again, 0, 0, 5)
    assert report(again, 1, 0, 8)
    third = sessions.begin(request(full.session_id, 2, {1: 8}), NAMES, 2.0)
    assert offsets(third) == {0: 5, 1: 8}
    assert report(third, 0, 10, 5)


def test_a_served_partition_goes_last(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, {0: 0, 1: 0, 2: 0}), NAMES, 0.0)
    plan = sessions.begin(request(full.session_id, 1), NAMES, 0.0)
    assert report(plan, 0, 10, 1)
    after = sessions.begin(request(full.session_id, 2), NAMES, 0.0)
    assert [target.partition for target in after.targets] == [1, 2, 0]


def test_a_partition_without_data_keeps_its_place(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, {0: 0, 1: 0, 2: 0}), NAMES, 0.0)
    assert report(full, 0, 10, 1), "in a full response each has its turn"
    for epoch in (1, 2):
        plan = sessions.begin(request(full.session_id, epoch), NAMES, 0.0)
        assert [target.partition for target in plan.targets] == [0, 1, 2]
        report(plan, 0, 0, epoch + 1)


def test_an_error_is_followed_by_a_fresh_report(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, {0: 5}), NAMES, 0.0)
    assert report(full, 0, 0, 5)
    second = sessions.begin(request(full.session_id, 1), NAMES, 0.0)
    assert report(second, 0, 0, -1, error=6)
    third = sessions.begin(request(full.session_id, 2), NAMES, 0.0)
    assert report(third, 0, 0, 5)


def test_forgotten_partitions_leave_and_an_empty_session_ends(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, {0: 5, 1: 7}), NAMES, 0.0)
    forget = request(full.session_id, 1)
    forget.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    assert offsets(sessions.begin(forget, NAMES, 0.0)) == {1: 7}
    forget = request(full.session_id, 2)
    forget.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[1])]
    assert sessions.begin(forget, NAMES, 0.0).session_id == 0
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("session_offset", "epoch", "version", "code"),
    [
        (1, 1, NAMES, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, NAMES, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, IDS, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_wrong_session_is_refused(
    sessions: FetchSessions, session_offset: int, epoch: int, version: int, code: ErrorCode
) -> None:
    full = sessions.begin(request(0, 0, {0: 5}), NAMES, 0.0)
    with pytest.raises(KafkaError) as caught:
        sessions.begin(request(full.session_id + session_offset, epoch), version, 0.0)
    assert caught.value.code is code


def test_a_full_request_replaces_the_session_it_names(sessions: FetchSessions) -> None:
    first = sessions.begin(request(0, 0, {0: 5}), NAMES, 0.0)
    second = sessions.begin(request(first.session_id, 0, {0: 5}), NAMES, 0.0)
    assert second.session_id != first.session_id
    assert len(sessions) == 1
    assert sessions.begin(request(second.session_id, -1, {0: 5}), NAMES, 0.0).session_id == 0
    assert len(sessions) == 0


def test_a_full_cache_gives_no_session_until_one_is_idle(sessions: FetchSessions) -> None:
    for _ in range(2):
        assert sessions.begin(request(0, 0, {0: 5}), NAMES, 0.0).session_id
    assert sessions.begin(request(0, 0, {0: 5}), NAMES, 119.0).session_id == 0
    assert sessions.begin(request(0, 0, {0: 5}), NAMES, 121.0).session_id
    assert len(sessions) == 2


def test_the_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, {0: 5}), NAMES, 0.0)
    session = full.session
    assert session is not None
    session.epoch = 2**31 - 1
    sessions.begin(request(full.session_id, 2**31 - 1), NAMES, 0.0)
    assert offsets(sessions.begin(request(full.session_id, 1), NAMES, 0.0)) == {0: 5}


# Memory


def wanted(count: int) -> dict[int, int]:
    return dict.fromkeys(range(count), 0)


def small(memory_max: int) -> FetchSessions:
    return FetchSessions(
        CountingRandom(),
        is_known,
        a_purgatory(),
        slots_max=100,
        memory_max=memory_max,
        share=Share(),
    )


def test_there_is_no_session_where_there_is_no_memory_for_it_until_one_is_idle() -> None:
    sessions = small(1_150_000)
    first = sessions.begin(request(0, 0, wanted(1000)), NAMES, 0.0)
    assert first.session_id
    plan = sessions.begin(request(0, 0, wanted(1000)), NAMES, 100.0)
    assert (plan.session_id, len(plan.targets)) == (0, 1000)
    assert sessions.begin(request(0, 0, wanted(10)), NAMES, 100.0).session_id
    assert sessions.begin(request(0, 0, wanted(1000)), NAMES, 120.0).session_id
    assert (len(sessions), sessions.evicted) == (2, 1)
    with pytest.raises(KafkaError):
        sessions.begin(request(first.session_id, 1), NAMES, 120.0)


def test_a_session_that_outgrows_the_memory_is_not_found_any_more() -> None:
    sessions = small(1_150_000)
    plan = sessions.begin(request(0, 0, wanted(1000)), NAMES, 0.0)
    with pytest.raises(KafkaError) as caught:
        sessions.begin(request(plan.session_id, 1, wanted(2000)), NAMES, 1.0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.memory) == (0, 0)


def test_memory_is_counted_until_the_last_session_is_gone() -> None:
    sessions = small(1 << 30)
    plan = sessions.begin(request(0, 0, wanted(50)), NAMES, 0.0)
    few = sessions.memory
    change = request(plan.session_id, 1, dict.fromkeys(range(40, 90), 7))
    change.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0, 1, 500])]
    assert len(sessions.begin(change, NAMES, 0.0).targets) == 88
    assert sessions.memory == few / 50 * 88
    assert sessions.begin(request(0, 0, wanted(3)), NAMES, 0.0).session_id
    sessions.begin(request(plan.session_id, -1), NAMES, 0.0)
    assert sessions.memory == few / 50 * 3


def test_a_session_is_charged_for_the_length_of_topic_names() -> None:
    sessions = small(100_000)
    plan = sessions.begin(request(0, 0, {0: 0}, topic="\U0001f4dc" * 32_000), NAMES, 0.0)
    assert (plan.session_id, len(plan.targets)) == (0, 1)


def test_a_session_that_has_become_small_reads_all_its_partitions(sessions: FetchSessions) -> None:
    full = sessions.begin(request(0, 0, wanted(LARGE)), NAMES, 0.0)
    assert full.session is not None
    assert full.session.news is not None
    for target in full.targets:
        full.session.news.conclude((target.topic, target.partition), target.partition, None)
    change = request(full.session_id, 1)
    change.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=list(range(LARGE - 9)))]
    assert len(sessions.begin(change, NAMES, 0.0).targets) == 9


def test_the_news_of_a_session_have_the_time_of_its_last_request(sessions: FetchSessions) -> None:
    """The idle partitions of a follower are caught up at that time."""
    full = sessions.begin(request(0, 0, wanted(LARGE)), NAMES, 3.0)
    assert full.session is not None
    assert full.session.news is not None
    assert full.session.news.fetched_ms == 3000
    sessions.begin(request(full.session_id, 1), NAMES, 4.5)
    assert full.session.news.fetched_ms == 4500


def test_many_partitions_that_are_not_here_are_answered_and_not_kept() -> None:
    sessions = small(1 << 30)
    plan = sessions.begin(request(0, 0, wanted(UNKNOWN_MAX + 1), topic="no"), NAMES, 0.0)
    assert (plan.session_id, len(plan.targets)) == (0, UNKNOWN_MAX + 1)
    assert plan.includes(plan.targets[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, -1)
    plan = sessions.begin(request(0, 0, wanted(UNKNOWN_MAX), topic="no"), NAMES, 0.0)
    assert plan.session_id, "a few may yet come"
    more = request(plan.session_id, 1, wanted(UNKNOWN_MAX * 3), topic="no")
    with pytest.raises(KafkaError) as caught:
        sessions.begin(more, NAMES, 0.0)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.memory == 0
