"""The short form of `make sim`."""

from __future__ import annotations

import pytest

from lakelog.coordinator.transaction import state, transitions
from lakelog.testing.simulation import Plan, World
from lakelog.testing.simulation.clients.transactions import TransactionalProducer
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


def test_producers_whose_epochs_are_used_up_go_on_with_other_ids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after 32,766 transactions of KIP-890, but after six."""
    for module in (state, transitions):
        monkeypatch.setattr(module, "EPOCH_LAST", 5)
    monkeypatch.setattr(transitions, "EPOCH_MAX", 6)
    faults = frozenset({"kill", "client crash", "slow network", "reset"})
    for seed in range(1, 4):
        world = World(seed, Plan(15.0, frozenset({"transactions"}), faults))
        assert world.run().violations == ()
        epochs = [epoch for _, epoch in world.producers]
        assert max(epochs) == 5
        clients = [one for one in world.clients if isinstance(one, TransactionalProducer)]
        assert epochs.count(0) > len(clients)
