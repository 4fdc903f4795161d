"""Confirmation, several names, and signals."""

from __future__ import annotations

import io
import signal

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.failures import CliError
from lakelog.cli.interaction import Interrupted, confirm, for_each, stopping

_MISSING = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_yes_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    confirm("delete it", yes=True)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_it_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(CliError) as caught:
        confirm("delete it", yes=False)
    assert caught.value.code == "LL0901"
    assert (
        caught.value.message == "cannot ask whether to delete it: standard input is not a terminal"
    )


@pytest.mark.parametrize(("answer", "agrees"), [("y\n", True), ("YES\n", True), ("\n", False)])
def test_a_terminal_is_asked(
    answer: str, agrees: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal(answer))
    if agrees:
        confirm("delete it", yes=False)
    else:
        with pytest.raises(CliError, match="did not delete it"):
            confirm("delete it", yes=False)
    assert capsys.readouterr().err == "delete it? [y/N] "


def _fail_on(*bad: str) -> tuple[list[str], object]:
    done: list[str] = []

    def action(name: str) -> None:
        if name in bad:
            raise _MISSING
        done.append(name)

    return done, action


@pytest.mark.parametrize(
    ("bad", "status", "done"),
    [((), 0, ["a", "b"]), (("a",), 7, ["b"]), (("a", "b"), 3, [])],
)
def test_many_names(bad: tuple[str, ...], status: int, done: list[str]) -> None:
    seen, action = _fail_on(*bad)
    assert for_each(["a", "b"], action) == status  # type: ignore[arg-type]
    assert seen == done


def test_the_failure_of_an_only_name_is_raised() -> None:
    with pytest.raises(KafkaError):
        for_each(["a"], _fail_on("a")[1])  # type: ignore[arg-type]


def test_the_first_signal_sets_the_flag_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopping() as stop:
        assert stop.exit_status == 0
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        assert stop.exit_status == 143
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_ends_what_blocks_where_that_is_allowed() -> None:
    with stopping() as stop:
        with stop.interrupting():
            pass
        with pytest.raises(Interrupted), stop.interrupting():
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted), stop.interrupting():
            raise AssertionError("the signal came before")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop.exit_status == 143


def test_an_interrupt_ends_with_130() -> None:
    with stopping() as stop:
        signal.raise_signal(signal.SIGINT)
    assert stop.exit_status == 130
