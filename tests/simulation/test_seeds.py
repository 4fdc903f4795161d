"""The short form of `make sim`."""

from __future__ import annotations

import pytest

from lakelog.testing.simulation.plan import plan_of
from lakelog.testing.simulation.runner import main

SEEDS = 40


def test_no_seed_fails(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seeds", str(SEEDS)])
    text = capsys.readouterr().out
    assert status == 0, text
    assert f"{SEEDS} seeds in " in text
    with capsys.disabled():
        print("\n" + text)


def test_a_seed_that_fails_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "lakelog.storage.log.Log.aborted_transactions", lambda self, offset, found: []
    )
    seed = next(seed for seed in range(1, 100) if "transactions" in plan_of(seed).workloads)
    assert main(["--seed", str(seed)]) == 1
    text = capsys.readouterr().out
    assert "to readers of committed records" in text
    assert f"make sim SEED={seed}" in text
