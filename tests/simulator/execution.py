"""The run of a world: start, faults, repair, the end of the clients, the final checks.

The phases follow Jepsen's tests: the nemesis injects faults while clients work; then all
faults end and the system has to recover; then everything is read and checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from doubles.sqlite_vfs import close_connections, seed_sqlite
from simulator.checkers.laws import Law
from simulator.checkers.logged_errors import LoggedErrors
from simulator.clients.consumers.hanging_transactions import HangingTransactionCheck
from simulator.clients.groups.settling import settle
from simulator.clients.inspector import Inspector
from simulator.engine.loop import Stuck
from simulator.engine.tasks import together
from simulator.plan import CLUSTER_DEATHS, DEATHS
from simulator.surroundings import Surroundings
from simulator.workloads import Workloads
from waiting import until

_ACKED_MIN = 10
_POLL_S = 0.1
_RECOVERY_S = 3.0
_RUN_S_MAX = 300.0
"""Virtual seconds after which a world counts as stuck."""


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """The result of one seed; `hash` is of all events."""

    seed: int
    violations: tuple[str, ...]
    broken: frozenset[Law]
    hash: str
    steps: int
    virtual_s: float
    faults: Mapping[str, int]
    counts: Mapping[str, int]

    @property
    def is_thin(self) -> bool:
        """Whether the run shows little: no broker died, or almost nothing was acknowledged."""
        deaths = sum(self.faults.get(name, 0) for name in (*DEATHS, *CLUSTER_DEATHS))
        return not deaths or self.counts.get("acked", 0) < _ACKED_MIN


def run_world(world: Surroundings) -> WorldOutcome:
    """Run a world once, and return what its checkers found. Raises nothing but bugs of its own."""
    return _Execution(world).run()


class _Execution:
    """The phases of a world, of one broker or of a cluster."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._simulator, self._loop = world.simulator, world.simulator.loop
        self._hosts, self._pool = world.hosts, world.pool
        self._findings = world.findings
        self._workloads = [Workloads(world.context, home) for home in world.homes]
        self._beating: asyncio.Task[None] | None = None

    def run(self) -> WorldOutcome:
        # SQLite draws random numbers of its own, which would differ between runs.
        seed_sqlite(self._world.seed)
        with LoggedErrors(self._findings):
            self._loop.on_step = self._on_step
            self._loop.set_exception_handler(self._on_exception)
            asyncio.set_event_loop(self._loop)
            try:
                self._loop.run_until_complete(asyncio.wait_for(self._phases(), _RUN_S_MAX))
            except (TimeoutError, Stuck) as error:
                self._findings.violation(
                    Law.RESTS,
                    f"the world does not come to rest ({error!r}): {self._pool.unfinished}",
                )
            finally:
                self._kill_all()
                close_connections()
                asyncio.set_event_loop(None)
                self._loop.close()
        return self._outcome()

    def _outcome(self) -> WorldOutcome:
        findings = self._findings
        self._simulator.trace("end", self._loop.time(), sorted(findings.counts.items()))
        return WorldOutcome(
            self._world.seed,
            tuple(findings.violations),
            frozenset(findings.broken),
            self._simulator.hash,
            self._loop.steps,
            self._loop.time(),
            dict(self._simulator.faults),
            dict(findings.counts),
        )

    async def _phases(self) -> None:
        conditions = self._world.conditions
        await self._start()
        await self._world.nemesis.run()
        with conditions.disturbing():
            await self._repair()
        await asyncio.sleep(_RECOVERY_S)
        conditions.is_settling = True
        await settle(self._pool.members, self._pool.dead_members, self._loop, self._findings)
        conditions.is_ending = True
        await self._pool.wait()
        await self._check()

    def _kill_all(self) -> None:
        for host in self._hosts:
            host.kill()
        self._pool.kill()
        if self._world.pulse is not None:
            self._world.pulse.process.kill()
            self._world.pulse.process.close_coroutines()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _on_step(self) -> None:
        for host in self._hosts:
            host.on_step()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        LoggedErrors.judge(self._findings, context["message"], context.get("exception"))

    async def _start(self) -> None:
        """Start the brokers, create the topics, and start the clients."""
        await together(*(host.start() for host in self._hosts))
        await until(lambda: self._world.is_ready, every_s=_POLL_S)
        for workloads in self._workloads:
            await workloads.create()
        pulse = self._world.pulse
        if pulse is not None:
            await self._loop.create_task(pulse.create(), context=pulse.process.context())
        for host in self._hosts:
            host.disk.write_back()
        self._pool.start(client for each in self._workloads for client in each.clients)
        if pulse is not None:
            self._beating = pulse.start()

    async def _repair(self) -> None:
        """End all faults, and have all brokers serve."""
        self._world.conditions.is_troubled = False
        self._simulator.trace("peace")
        self._world.network.restore_speed()
        self._world.network.heal()
        for host in self._hosts:
            host.end_faults()
        await self._world.recover()

    async def _check(self) -> None:
        """Read every partition to its end, before and after a clean restart of each broker."""
        if self._beating is not None:
            await self._beating
        if self._world.context.plan.replicas == 1:  # with more, an observer watches transactions
            for each in self._workloads:
                await self._visit(HangingTransactionCheck, "hanging", each)
        for each in self._workloads:
            await self._visit(Inspector, "inspector", each)
            for host in each.host.hosts:
                await host.stop()
                await host.bring_back()
            await self._visit(Inspector, "inspector", each)

    async def _visit(
        self, visitor: type[HangingTransactionCheck | Inspector], name: str, workloads: Workloads
    ) -> None:
        """Have a client look at all partitions of these workloads."""
        context = self._world.context
        await visitor(context, workloads.named(name), workloads.topic_partitions).start()
