from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.cli import options
from lakelog.cli.declaration import Command
from lakelog.cli.failures import CliError
from lakelog.cli.options import CommandSession, open_admin, split_pair
from lakelog.client.connection import Connection
from lakelog.client.errors import NotStartedError, UnreachableError


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10.0), ("2m", 120.0)])
def test_a_time_limit_has_a_unit(text: str, seconds: float) -> None:
    assert CommandSession(timeout=text).timeout_s == seconds


@pytest.mark.parametrize("text", ["0s", "0ms", "soon", "-1s", ""])
def test_a_time_limit_that_allows_no_answer_is_rejected(text: str) -> None:
    with pytest.raises(CliError) as error:
        _ = CommandSession(timeout=text).timeout_s
    assert error.value.code == "LL0902"


def test_a_pair_is_split_at_the_first_sign() -> None:
    assert split_pair("retention.ms=1", "--config") == ("retention.ms", "1")
    assert split_pair("a=b=c", "--config") == ("a", "b=c")
    assert split_pair("a=", "--config") == ("a", "")


@pytest.mark.parametrize("text", ["", "a", "=b"])
def test_text_that_is_no_pair_is_rejected_with_its_option(text: str) -> None:
    with pytest.raises(CliError, match=rf"--config '{text}' is not KEY=VALUE"):
        split_pair(text, "--config")


def test_brokers_are_the_option_s_or_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("demo", lambda session: None)
    command.add_group("session", CommandSession)
    monkeypatch.delenv("LAKELOG_BROKERS", raising=False)
    assert command.parse([])["session"].brokers == "127.0.0.1:9092"
    monkeypatch.setenv("LAKELOG_BROKERS", "a:1,b:2")
    assert command.parse([])["session"].brokers == "a:1,b:2"
    assert command.parse(["-b", "c:3"])["session"].brokers == "c:3"


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
    monkeypatch.setattr(options, "START_S", 0.0)
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
