"""Commands that come before the broker does, as after `lakelog dev &`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from lakelog.cli import options
from lakelog.cli.main import run


@pytest.mark.parametrize("words", [["topic", "create", "demo"], ["produce", "demo", "/dev/null"]])
def test_a_command_waits_for_a_broker_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.kill()
        said: list[str] = []

        def start(text: str, *, quiet: bool) -> None:
            said.append(text)
            broker.restart()

        monkeypatch.setattr(options, "note", start)
        monkeypatch.setattr(options, "START_S", 60.0)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert run([*words, "-b", broker.bootstrap, "--timeout", "1m"]) == 0
        assert said == [f"waiting for a broker at {broker.bootstrap} ..."]
