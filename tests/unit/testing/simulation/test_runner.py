"""The command that runs seeds: its exit status, and the command that reproduces a failure."""

from __future__ import annotations

import pytest

from lakelog.testing.simulation import Outcome, Plan, World, runner

SOUND = Outcome(7, (), frozenset(), "h", 10, 1.0, {"kill": 1}, {"acked": 100})
VIOLATED = Outcome(7, ("a is lost",), frozenset(), "h", 10, 1.0, {"kill": 1}, {"acked": 100})
THIN = Outcome(7, (), frozenset(), "h", 10, 1.0, {}, {"acked": 100})


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [
        (SOUND, 0, "seen: acked 100"),
        (VIOLATED, 1, "seed 7: a is lost"),
        (THIN, 1, "no broker died"),
    ],
)
def test_a_violation_and_a_thin_run_fail(
    outcome: Outcome,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def finish(world: World) -> Outcome:
        world.simulator.loop.close()
        return outcome

    monkeypatch.setattr(runner, "run", finish)
    assert runner.main(["--seed", "7"]) == status
    printed = capsys.readouterr().out
    assert text in printed
    assert ("make sim SEED=7" in printed) is bool(status)


def test_the_seed_decides_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds: list[World] = []

    def keep(world: World) -> Outcome:
        worlds.append(world)
        return SOUND

    monkeypatch.setattr(runner, "run", keep)
    runner.main(["--seed", "7"])
    (world,) = worlds
    assert world.seed == 7
    assert isinstance(world.plan, Plan)
    world.simulator.loop.close()
