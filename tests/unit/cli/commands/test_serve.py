from __future__ import annotations

import pytest

from lakelog.cli.broker_start import BrokerArguments, parse_arguments
from lakelog.cli.commands import serve
from lakelog.cli.main import run

_WORDS = (
    "--data d --listen 127.0.0.1:0 --properties p --node-id 3 --metadata sqlite:m --http h:1"
    " --advertise A=a:1 --advertise B=b:2 --set a=1 --set b=2 --insecure --log-format json -q"
)


def _parsed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> BrokerArguments:
    """Return the arguments that the command finds."""
    found: list[BrokerArguments] = []
    monkeypatch.setattr(serve, "run_broker", found.append)
    assert run(["serve", *words]) == 0
    (arguments,) = found
    return arguments


def test_each_option_reaches_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = BrokerArguments(
        data="d",
        listen="127.0.0.1:0",
        properties="p",
        node_id="3",
        metadata="sqlite:m",
        http="h:1",
        advertise=["A=a:1", "B=b:2"],
        settings=["a=1", "b=2"],
        insecure=True,
        log_format="json",
        quiet=True,
    )
    assert _parsed(_WORDS.split(), monkeypatch) == expected


@pytest.mark.parametrize("words", [_WORDS, "", "-v --set a=b=c --http=h:1", "-q"])
def test_a_process_of_a_cluster_has_the_same_arguments(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _parsed(words.split(), monkeypatch) == parse_arguments(words.split())
