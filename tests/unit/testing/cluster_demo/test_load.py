"""The load with a producer in memory; tests/system runs it against brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakelog.testing.cluster_demo import load
from lakelog.testing.cluster_demo.load import Load
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
