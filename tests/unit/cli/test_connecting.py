from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.cli import connecting
from lakelog.cli.connecting import open_admin
from lakelog.cli.options import CommandSession
from lakelog.client.connection import Connection
from lakelog.client.errors import NotStartedError, UnreachableError


class Refusing:
    """Replaces `Connection.open`: no broker answers. `attempts` is the number of connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, timed_out: bool = False) -> None:
        self.attempts = 0
        self._timed_out = timed_out
        monkeypatch.setattr(Connection, "open", self._open)

    def _open(self, *_: object, **__: object) -> Connection:
        self.attempts += 1
        raise UnreachableError("127.0.0.1:9092: refused", timed_out=self._timed_out)


def test_a_local_broker_may_be_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(monkeypatch)
    with open_admin(CommandSession(brokers="localhost:9092,[::1]:9093", timeout="300ms")) as admin:
        assert refusing.attempts == 0
        with pytest.raises(NotStartedError) as raised:
            admin.topics.list()
    assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert refusing.attempts > 2


def test_a_command_that_retries_waits_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `topic create` waits for its start, and then for its `--timeout` again."""
    monkeypatch.setattr(connecting, "START_S", 0.0)
    refusing = Refusing(monkeypatch)
    with open_admin(CommandSession(brokers="127.0.0.1")) as admin, pytest.raises(NotStartedError):
        admin.topics.create("orders")
    assert refusing.attempts == 1


def test_a_remote_broker_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(monkeypatch)
    brokers = "192.0.2.1:9092,localhost:9092"
    with open_admin(CommandSession(brokers=brokers)) as admin, pytest.raises(UnreachableError):
        admin.topics.list()
    assert refusing.attempts == 2, "one for each address"


def test_a_local_broker_that_does_not_answer_is_not_asked_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusing = Refusing(monkeypatch, timed_out=True)
    with open_admin(CommandSession()) as admin, pytest.raises(UnreachableError):
        admin.topics.list()
    assert refusing.attempts == 1
