from __future__ import annotations

import signal

import pytest

from lakelog.cli.stopping import Interrupted, stopping


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
