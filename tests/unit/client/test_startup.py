from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from lakelog.client.connection import Connection
from lakelog.client.errors import NotStartedError, UnreachableError
from lakelog.client.startup import NOTICE_S, Startup
from lakelog.dialogue.dialogue import Dialogue


class Broker:
    """Refuses connections until a time on a clock that only sleeping moves."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ready_s: float, *, timed_out: bool = False
    ) -> None:
        self.now = 100.0
        self.attempts = 0
        self._ready = self.now + ready_s
        self._timed_out = timed_out
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def connect(self) -> Connection:
        self.attempts += 1
        if self.now < self._ready:
            raise UnreachableError("b:9092: refused", timed_out=self._timed_out)
        sock, peer = socket.socketpair()
        peer.close()
        return Connection(sock, Dialogue("test", "1"), 1 << 20, "b:9092")


@pytest.fixture
def waits() -> list[str]:
    return []


@pytest.fixture
def on_wait(waits: list[str]) -> Callable[[], object]:
    return lambda: waits.append("waiting")


@pytest.mark.parametrize(("ready_s", "noticed"), [(0.0, 0), (NOTICE_S / 2, 0), (3.0, 1)])
def test_the_first_connection_waits_for_a_broker_that_starts(
    monkeypatch: pytest.MonkeyPatch,
    waits: list[str],
    on_wait: Callable[[], object],
    ready_s: float,
    noticed: int,
) -> None:
    broker = Broker(monkeypatch, ready_s)
    Startup(5.0, on_wait).connect(broker.connect).close()
    assert ready_s <= broker.now - 100.0 < ready_s + 1.0
    assert len(waits) == noticed


def test_a_broker_that_does_not_start_is_awaited_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, on_wait: Callable[[], object]
) -> None:
    broker = Broker(monkeypatch, 60.0)
    with pytest.raises(NotStartedError) as raised:
        Startup(5.0, on_wait).connect(broker.connect)
    assert not raised.value.retriable
    assert 4.0 <= broker.now - 100.0 < 5.0


def test_a_connection_that_times_out_is_not_tried_twice(
    monkeypatch: pytest.MonkeyPatch, on_wait: Callable[[], object]
) -> None:
    broker = Broker(monkeypatch, 60.0, timed_out=True)
    with pytest.raises(NotStartedError) as raised:
        Startup(5.0, on_wait).connect(broker.connect)
    assert raised.value.is_timeout
    assert broker.attempts == 1
