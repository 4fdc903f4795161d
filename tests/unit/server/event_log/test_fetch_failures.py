from __future__ import annotations

import logging
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.server.event_log.fetch_failures import LASTS_S, FetchFailures

PASSING, OTHER = (
    KafkaError(code) for code in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)
)


class Copied:
    """A partition that is copied from broker 2, and the events of its lines."""

    topic, index = "orders", 3

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.now = 100.0
        clock: Any = self
        self.failures = FetchFailures(2, clock)

    def monotonic(self) -> float:
        return self.now

    def fail(self, error: Exception, *, seconds: float = 0.0) -> None:
        for _ in range(3):
            self.failures.failed(self._partition, error)
        self.now += seconds

    def succeed(self) -> None:
        self.failures.succeeded(self._partition)

    @property
    def _partition(self) -> Any:
        return self

    @property
    def events(self) -> list[str]:
        return [record.__dict__["event"] for record in self._caplog.records]


@pytest.fixture
def copied(caplog: pytest.LogCaptureFixture) -> Copied:
    return Copied(caplog)


def test_a_failure_has_one_line_at_its_begin_and_one_at_its_end(copied: Copied) -> None:
    copied.fail(OTHER, seconds=60.0)
    copied.fail(OTHER)
    assert copied.events == ["replica_fetch_failed"]
    copied.succeed()
    copied.succeed()
    assert copied.events == ["replica_fetch_failed", "replica_fetch_resumed"]


def test_different_leader_epochs_after_an_election_have_no_line(copied: Copied) -> None:
    copied.fail(PASSING, seconds=LASTS_S - 0.1)
    copied.fail(PASSING)
    copied.succeed()
    assert copied.events == []
    copied.fail(PASSING, seconds=LASTS_S)
    copied.fail(PASSING)
    assert copied.events == ["replica_fetch_failed"], "this one lasts"


def test_a_partition_that_is_copied_from_elsewhere_is_forgotten(copied: Copied) -> None:
    copied.fail(OTHER)
    copied.failures.forget(copied._partition)
    copied.succeed()
    assert copied.events == ["replica_fetch_failed"]
