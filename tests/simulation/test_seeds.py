"""The short form of `make sim`."""

from __future__ import annotations

import pytest

from lakelog.coordinator.transaction import state, transitions
from simulator import Plan, World, run_world
from simulator.brokers.host import BrokerHost
from simulator.clients.producers.transactional import TransactionalProducer
from simulator.plan import DEATHS, PRODUCING, plan_of
from simulator.runner import main


@pytest.mark.parametrize(("brokers", "seeds"), [("1", 10), ("3", 6)])
def test_no_seed_fails(brokers: str, seeds: int, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seeds", str(seeds), "--brokers", brokers])
    text = capsys.readouterr().out
    assert status == 0, text
    assert f"{seeds} seeds in " in text
    with capsys.disabled():
        print("\n" + text)


def test_no_plan_is_thin() -> None:
    """Of 120 plans drawn at will 43 killed no broker, and 37 had nothing acknowledged."""
    for plan in map(plan_of, range(1, 121)):
        assert plan.faults & set(DEATHS)
        assert plan.workloads & set(PRODUCING)


def test_a_world_that_shows_next_to_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thin = Plan(2.0, frozenset({"plain"}), frozenset({"reset"}))
    monkeypatch.setattr("simulator.world.plan_of", lambda seed: thin)
    assert main(["--seed", "3", "--brokers", "1"]) == 1
    assert "no broker died" in capsys.readouterr().out


def test_a_seed_that_fails_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "lakelog.storage.log.Log.aborted_transactions", lambda *arguments, **named: []
    )
    seed = next(seed for seed in range(1, 100) if "transactions" in plan_of(seed).workloads)
    assert main(["--seed", str(seed), "--brokers", "1"]) == 1
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
        assert run_world(world).violations == ()
        epochs = [epoch for *_, epoch in world.producer_ids.assigned]
        assert max(epochs) == 5
        clients = [one for one in world.pool.clients if isinstance(one, TransactionalProducer)]
        assert epochs.count(0) > len(clients)


def test_two_brokers_live_in_one_world() -> None:
    """Each has its own disk and clients, and is harmed by itself; one network is between all."""
    faults = frozenset({"kill", "power", "reset", "partition", "clock", "disk error"})
    workloads = frozenset({"idempotent", "transactions", "consumer group"})
    world = World(5, Plan(15.0, workloads, faults), brokers=2)
    assert run_world(world).violations == ()
    first, second = world.brokers.hosts
    assert min(first.starts, second.starts) > 1
    for host in (first, second):
        own = [
            value
            for value, sent in world.records.sent.items()
            if is_of(host, sent.topic_partition[0])
        ]
        assert any(world.records.sent[value].acked >= 0 for value in own)
        assert any(world.brokers.home_of(group) is host for group, _ in world.offsets.groups())
        folders = {path.parent.name for path in host.disk.files()}
        assert f"orders{host.suffix}-0" in folders
    assert "orders-0" not in {path.parent.name for path in second.disk.files()}


def is_of(host: BrokerHost, topic: str) -> bool:
    return topic.endswith("-b2") == bool(host.suffix)
