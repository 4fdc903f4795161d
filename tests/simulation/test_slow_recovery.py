"""A broker whose recovery takes minutes keeps no other one from serving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from repetitions import first_of
from simulator.cluster.nemesis import ClusterNemesis
from simulator.cluster.plan import ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.engine.tasks import SimulatedTasks
from simulator.execution import run_world
from waiting import until

T = TypeVar("T")

RECOVERY_S = 90.0
SERVED_WITHIN_S = 30.0
"""The slow broker is asked for five seconds, and an attempt to connect takes as long."""


class SlowRecovery:
    """Kills all brokers once; the first to start again needs minutes to open its logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served_after_s = float("inf")
        self.slow_joined_late = False
        self._slow: set[Any] = set()
        offload = SimulatedTasks.offload

        def offload_slowly(tasks: SimulatedTasks, lane: str, work: Callable[[], T]) -> Any:
            if lane != "load" or tasks._rng not in self._slow:
                return offload(tasks, lane, work)
            self._slow.clear()
            done: asyncio.Future[T] = tasks.future()

            def finish() -> None:
                if not done.cancelled():
                    done.set_result(work())

            tasks.call_later(RECOVERY_S, finish)
            return done

        monkeypatch.setattr(SimulatedTasks, "offload", offload_slowly)
        monkeypatch.setattr(ClusterNemesis, "_cut_store", lambda nemesis: self._run(nemesis))

    async def _run(self, nemesis: ClusterNemesis) -> None:
        if self.served_after_s != float("inf"):
            return
        loop, (slow, *others) = nemesis._simulator.loop, nemesis._hosts
        for host in nemesis._hosts:
            host.kill()
        await asyncio.sleep(0.1)
        self._slow.add(slow.rng)
        slow_start = asyncio.ensure_future(slow.bring_back())
        # Until it opens its logs, as the controller.
        await until(lambda: not self._slow, every_s=0.01)
        begun = loop.time()
        await asyncio.gather(*(host.bring_back() for host in others))
        ids = {host.node_id for host in others}
        await until(lambda: ids.isdisjoint(nemesis._cluster.image.fenced), every_s=0.1)
        self.served_after_s = loop.time() - begun
        self.slow_joined_late = not slow_start.done()
        await slow_start


@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_complete_brokers_serve_while_another_one_recovers(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    fault = SlowRecovery(monkeypatch)
    plan = ClusterPlan(3.0, frozenset({"plain"}), frozenset({"cut store"}))
    assert run_world(ClusterWorld(seed, plan)).violations == ()
    assert fault.slow_joined_late
    assert fault.served_after_s < SERVED_WITHIN_S
