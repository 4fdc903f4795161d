from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.cli.broker_start import BrokerArguments
from lakelog.cli.commands import dev
from lakelog.cli.commands.dev import banner
from lakelog.cli.main import run
from lakelog.server.options import ReadyInfo

Starts = list[BrokerArguments]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """The arguments of brokers that the command would run."""
    found: Starts = []

    def note(arguments: BrokerArguments, ready: Callable[[ReadyInfo], None]) -> int:
        found.append(arguments)
        return 0

    monkeypatch.setattr(dev, "run_broker", note)
    return found


def _banner(port: int) -> str:
    info = ReadyInfo((("PLAINTEXT", "127.0.0.1", port),), Path("d"), 1, "c")
    return banner(info, Path("d"))


def test_the_broker_listens_on_loopback_only(starts: Starts) -> None:
    assert run(["dev"]) == run(["dev", "--port", "0"]) == 0
    assert [each.listen for each in starts] == ["127.0.0.1:9092", "127.0.0.1:0"]
    assert not any(each.insecure for each in starts)


def test_http_is_off_unless_requested(starts: Starts) -> None:
    assert run(["dev"]) == run(["dev", "--http", "127.0.0.1:9404"]) == 0
    assert [each.http for each in starts] == [None, "127.0.0.1:9404"]


def test_a_setting_of_the_user_comes_after_the_defaults(starts: Starts) -> None:
    words = ["--partitions", "3", "--set", "num.partitions=5", "--set", "a=b=c"]
    assert run(["dev", *words]) == 0
    assert starts[0].settings == (
        "group.initial.rebalance.delay.ms=0",
        "num.partitions=3",
        "num.partitions=5",
        "a=b=c",
    )


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_out_of_range_starts_no_broker(
    port: str, starts: Starts, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dev", f"--port={port}"]) == 2
    assert f"--port {port} is not a port" in capsys.readouterr().err
    assert not starts


def test_commands_of_the_banner_name_a_port_other_than_the_default() -> None:
    assert " -b " not in _banner(9092)
    shown = _banner(9100)
    assert shown.count(" -b 127.0.0.1:9100") == 4
    assert "bootstrap servers 127.0.0.1:9100." in shown
