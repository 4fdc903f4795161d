from __future__ import annotations

import pytest

from lakelog.cli.declaration import Command
from lakelog.cli.failures import CliError
from lakelog.cli.options import CommandSession, split_pair


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
