"""The load with a producer in memory; tests/system runs it against brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakelog.testing.cluster_demo import load
from lakelog.testing.cluster_demo.load import (
    Acknowledged,
    Fault,
    Gap,
    Load,
    Verdict,
    examine,
    longest_gap,
    table,
)
from waiting import eventually

_REFUSED_AT = 5


class Message:
    """A delivered record."""

    def __init__(self, partition: int, offset: int, value: bytes) -> None:
        self._place = partition, offset
        self._value = value

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def value(self) -> bytes:
        return self._value


class Producer:
    """Acknowledges records at each poll; its queue is full once, and one record fails."""

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["acks"] == "all" and settings["enable.idempotence"]
        self.waiting: list[tuple[Callable[..., None], Message]] = []
        self.offsets = [0, 0]
        self.calls = 0

    def produce(
        self, topic: str, value: bytes, partition: int, on_delivery: Callable[..., None]
    ) -> None:
        self.calls += 1
        if self.calls == _REFUSED_AT:
            raise BufferError
        self.waiting.append((on_delivery, Message(partition, self.offsets[partition], value)))
        self.offsets[partition] += 1

    def poll(self, timeout_s: float) -> None:
        for callback, message in self.waiting:
            callback("failed" if message.value() == b"1" else None, message)
        self.waiting.clear()

    def flush(self, timeout_s: float) -> int:
        self.poll(0)
        return 0


def test_acknowledged_records_are_kept_with_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "Producer", Producer)
    running = Load("h:1", "t", 2)
    running.start()
    eventually(lambda: len(running.acknowledged) >= 20)
    running.stop()
    values = [int(each.value) for each in running.acknowledged]
    assert values == [number for number in range(running.sent) if number != 1]
    assert running.failed == 1
    moments = [each.moment_s for each in running.acknowledged]
    assert moments == sorted(moments)
    assert {each.partition for each in running.acknowledged} == {0, 1}


STORED = {0: [(0, b"0"), (1, b"2")], 1: [(0, b"1")]}
ACKNOWLEDGED = [
    Acknowledged(0, 0, b"0", 0.1),
    Acknowledged(1, 0, b"1", 0.2),
    Acknowledged(0, 1, b"2", 0.3),
]


def test_records_at_their_places_prove_that_nothing_is_lost() -> None:
    verdict = examine(ACKNOWLEDGED, STORED)
    assert verdict == Verdict(3, 3, 0, 0, 0, 0)
    assert verdict.holds


def test_a_record_without_an_acknowledgement_may_be_stored() -> None:
    assert examine(ACKNOWLEDGED[:2], STORED).holds


def test_a_record_whose_offset_the_client_does_not_know_is_sought_in_its_partition() -> None:
    unknown = [record._replace(offset=None) for record in ACKNOWLEDGED]
    assert examine(unknown, STORED).holds
    assert examine(unknown, {0: STORED[0], 1: []}).missing == 1
    assert examine(unknown, {0: [*STORED[0], (2, b"1")]}).misplaced == 1


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [
        ({0: [(0, b"0")], 1: [(0, b"1")]}, Verdict(3, 2, 1, 0, 0, 0)),
        ({0: [(0, b"0"), (1, b"2"), (2, b"2")], 1: [(0, b"1")]}, Verdict(3, 4, 0, 0, 1, 0)),
        ({0: [(0, b"2"), (1, b"0")], 1: [(0, b"1")]}, Verdict(3, 3, 0, 2, 0, 1)),
        ({0: [(0, b"0")], 1: [(0, b"1"), (1, b"2")]}, Verdict(3, 3, 0, 1, 0, 0)),
    ],
    ids=["missing", "repeated", "reordered", "misplaced"],
)
def test_each_anomaly_is_counted(
    stored: dict[int, list[tuple[int, bytes]]], verdict: Verdict
) -> None:
    found = examine(ACKNOWLEDGED, stored)
    assert found == verdict
    assert not found.holds


def test_the_longest_gap_of_a_partition_counts_even_if_others_go_on() -> None:
    moments = [(0, 1.0), (1, 1.1), (1, 2.0), (1, 3.0), (0, 3.5), (0, 3.6)]
    assert longest_gap(moments, 1.5, 4.0) == Gap(0, 1.0, 3.5)


def test_gaps_before_and_after_the_fault_do_not_count() -> None:
    moments = [(0, 0.0), (0, 5.0), (0, 6.0), (0, 6.5), (0, 9.0), (0, 20.0), (0, 21.0)]
    assert longest_gap(moments, 6.0, 8.0) == Gap(0, 6.5, 9.0)
    assert longest_gap(moments, 5.5, 6.2) == Gap(0, 5.0, 6.0)


def test_a_gap_that_has_not_ended_counts() -> None:
    assert longest_gap([(0, 1.0), (1, 4.0)], 2.0, 4.5) == Gap(0, 1.0, 4.5)


def test_a_partition_without_writes_has_no_gap() -> None:
    assert longest_gap([], 0.0, 1.0) is None
    assert "no write" in table([Fault("kill", 0.0, 1.0)], [None])


def test_each_fault_has_a_line_with_its_gap() -> None:
    lines = table([Fault("kill -9", 1.0, 2.0)], [Gap(3, 1.0, 2.26)]).splitlines()
    assert lines[2] == "kill -9  1.26 s (partition 3)"
