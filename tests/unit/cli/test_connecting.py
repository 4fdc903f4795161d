from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.cli.connecting import open_admin
from lakelog.cli.options import Session
from lakelog.client.admin import Admin
from lakelog.client.errors import UnreachableError


class Refusing:
    """Replaces `Admin.connect`: no broker answers. `waits` are the limits it was called with."""

    def __init__(self, *, timed_out: bool = False) -> None:
        self.waits: list[float | None] = []
        self._timed_out = timed_out

    def connect(self, timeout_s: float | None = None) -> None:
        self.waits.append(timeout_s)
        raise UnreachableError("127.0.0.1:9092: refused", timed_out=self._timed_out)

    def replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Admin, "connect", lambda _, timeout_s=None: self.connect(timeout_s))


@pytest.mark.parametrize(
    ("timeout", "waits"), [("10s", [0.5, 4.5]), ("2s", [0.5, 1.5]), ("100ms", [0.1])]
)
def test_a_local_broker_may_be_starting_for_a_while(
    monkeypatch: pytest.MonkeyPatch, timeout: str, waits: list[float]
) -> None:
    refusing = Refusing()
    refusing.replace(monkeypatch)
    with pytest.raises(UnreachableError) as raised:
        open_admin(Session(brokers="localhost:9092,[::1]:9093", timeout=timeout))
    assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert refusing.waits == waits


def test_a_remote_broker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing()
    refusing.replace(monkeypatch)
    open_admin(Session(brokers="192.0.2.1:9092,localhost:9092")).close()
    assert refusing.waits == []


def test_a_local_broker_that_does_not_answer_is_not_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusing = Refusing(timed_out=True)
    refusing.replace(monkeypatch)
    with pytest.raises(UnreachableError):
        open_admin(Session())
    assert refusing.waits == [0.5]
