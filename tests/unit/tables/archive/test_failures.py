"""Waiting for a broker that went away."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import UnreachableError, refused
from lakelog.tables.archive import failures
from lakelog.tables.archive.failures import Availability
from lakelog.tables.topic.errors import TopicMissingError
from unit.tables.archive_log import Log


class Brokers:
    """A stand-in for `TopicClient`: each connection gets the next answer, then the last again."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)

    def __call__(self, bootstrap: str, *, client_id: str, timeout_s: float) -> Brokers:
        return self

    def __enter__(self) -> Log:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            raise answer
        return _Log({0: 1, 1: 2})

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


class _Log(Log):
    def latest(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {key: self.ends[key[1]] for key in partitions}


AWAY = UnreachableError("connection refused")


def waited(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, limit_s: float | None
) -> tuple[bool, list[str]]:
    lines: list[str] = []
    monkeypatch.setattr(failures, "TopicClient", brokers)
    monkeypatch.setattr(failures, "pauses", lambda: iter([0.0] * 100))
    there = Availability("b:1", "orders", limit_s, lines.append)
    return there.wait(threading.Event()), lines


def test_a_broker_that_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, Brokers(None), None) == (False, [])
    assert waited(monkeypatch, Brokers(TopicMissingError("no such topic")), None) == (False, [])


def test_one_line_when_it_goes_and_one_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, timed_out = ConnectionRefusedError(), TimeoutError()

    assert waited(monkeypatch, Brokers(AWAY, closed, timed_out, AWAY, None), None) == (
        True,
        [
            "orders: no broker answers at b:1; waiting until it returns",
            "orders: the broker answers again",
        ],
    )


def test_a_partition_that_is_offline_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offline = refused(ErrorCode.KAFKA_STORAGE_ERROR, "orders-0")

    _, lines = waited(monkeypatch, Brokers(offline, None), None)

    assert lines[0] == f"orders: {offline}; waiting until it returns"


def test_a_wait_with_a_limit_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreachableError, match="after waiting 0 s: no broker answers at b:1"):
        waited(monkeypatch, Brokers(AWAY), 0.0)


def test_a_wait_ends_when_the_stop_event_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    monkeypatch.setattr(failures, "TopicClient", Brokers(AWAY))

    def notice(line: str) -> None:
        stop.set()

    assert Availability("b:1", "orders", None, notice).wait(stop)
