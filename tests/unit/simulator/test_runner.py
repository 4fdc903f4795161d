"""The command that runs seeds: its exit status, and the command that reproduces a failure."""

from __future__ import annotations

import pytest

from simulator import World, WorldOutcome, runner
from simulator.cluster.world import ClusterWorld

SOUND = WorldOutcome(7, (), frozenset(), "h", 10, 1.0, {"kill": 1}, {"acked": 100})
VIOLATED = WorldOutcome(7, ("a is lost",), frozenset(), "h", 10, 1.0, {"kill": 1}, {"acked": 100})
THIN = WorldOutcome(7, (), frozenset(), "h", 10, 1.0, {}, {"acked": 100})


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [
        (SOUND, 0, "seen: acked 100"),
        (VIOLATED, 1, "seed 7: a is lost"),
        (THIN, 1, "no broker died"),
    ],
)
def test_a_violation_and_a_thin_run_fail(
    outcome: WorldOutcome,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "run_seed", lambda seed: outcome)
    assert runner.main(["--seed", "7"]) == status
    printed = capsys.readouterr().out
    assert text in printed
    assert ("make sim SEED=7" in printed) is bool(status)


@pytest.mark.parametrize(("arguments", "brokers"), [([], 3), (["--brokers", "1"], 1)])
def test_three_brokers_form_a_cluster_unless_one_is_wanted(
    arguments: list[str],
    brokers: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    worlds: list[World | ClusterWorld] = []

    def keep(world: World | ClusterWorld) -> WorldOutcome:
        worlds.append(world)
        world.simulator.loop.close()
        return VIOLATED

    monkeypatch.setattr(runner, "run_world", keep)
    assert runner.main(["--seed", "7", *arguments]) == 1
    (world,) = worlds
    assert world.seed == 7
    assert len(world.hosts) == brokers
    assert ("BROKERS=1" in capsys.readouterr().out) is (brokers == 1)
