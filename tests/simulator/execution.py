"""The run of a world: start, faults, repair, the end of the clients, the final checks.

The phases follow Jepsen's tests: the nemesis injects faults while clients work; then all
faults end and the system has to recover; then everything is read and checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from doubles.sqlite_vfs import close_connections, seed_sqlite
from simulator.brokers.host import BrokerHost
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.logged_errors import LoggedErrors
from simulator.clients.consumers.hanging_transactions import HangingTransactionCheck
from simulator.clients.context import ClientContext
from simulator.clients.groups.settling import settle
from simulator.clients.inspector import Inspector
from simulator.clients.pool import ClientPool
from simulator.conditions import Conditions
from simulator.engine.loop import Stuck
from simulator.engine.simulator import Simulator
from simulator.network.network import Network
from simulator.plan import CLUSTER_DEATHS, DEATHS
from simulator.workloads import Workloads
from simulator.world import World

_ACKED_MIN = 10
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


def run(world: World) -> WorldOutcome:
    """Run a world once, and return what its checkers found. Raises nothing but bugs of its own."""
    return _Alone(world).run()


class Parts(Protocol):
    """The parts of a world that every execution uses."""

    @property
    def seed(self) -> int: ...
    @property
    def simulator(self) -> Simulator: ...
    @property
    def network(self) -> Network: ...
    @property
    def conditions(self) -> Conditions: ...
    @property
    def findings(self) -> Findings: ...
    @property
    def pool(self) -> ClientPool: ...
    @property
    def context(self) -> ClientContext: ...
    @property
    def hosts(self) -> Sequence[BrokerHost]: ...
    @property
    def nemesis(self) -> Faults: ...


class Faults(Protocol):
    """The faults of a world."""

    async def run(self) -> None:
        """Inject faults for the time of the plan."""


class Execution:
    """The phases that all worlds have in common."""

    def __init__(self, world: Parts) -> None:
        self._world = world
        self._simulator, self._loop = world.simulator, world.simulator.loop
        self._hosts, self._pool = world.hosts, world.pool
        self._findings = world.findings

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
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _on_step(self) -> None:
        for host in self._hosts:
            host.on_step()

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        LoggedErrors.judge(self._findings, context["message"], context.get("exception"))

    async def _start(self) -> None:
        """Start the brokers, create the topics, and start the clients."""
        raise NotImplementedError

    async def _repair(self) -> None:
        """End all faults, and have all brokers serve."""
        raise NotImplementedError

    async def _check(self) -> None:
        """Read everything to its end."""
        raise NotImplementedError


class _Alone(Execution):
    """Brokers without a cluster."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._workloads = [Workloads(world.context, host) for host in self._hosts]
        self._bit_flips = world.bit_flips

    async def _start(self) -> None:
        for host in self._hosts:
            await host.start()
        for host, workloads in zip(self._hosts, self._workloads, strict=True):
            await workloads.create()
            host.disk.write_back()
        self._pool.start(client for each in self._workloads for client in each.clients)

    async def _repair(self) -> None:
        """End all faults, and restart brokers: one may have taken a partition offline."""
        self._world.conditions.is_troubled = False
        self._simulator.trace("peace")
        self._world.network.restore_speed()
        self._world.network.heal()
        for host in self._hosts:
            await self._repair_broker(host)

    async def _repair_broker(self, host: BrokerHost) -> None:
        host.disk.capacity = None
        host.disk.stop_at = None
        host.disk.forget_faults()
        host.metadata_unknown_percent = 0
        if host.process is not None:
            host.kill()
        flips = self._bit_flips[host.name]
        flips.repair(self._simulator.random_stream("repair"))
        await host.bring_back()
        if flips.repair_others(host.usable()):
            host.kill()
            await host.bring_back()

    async def _check(self) -> None:
        """Read every partition to its end, before and after a clean restart."""
        context = self._world.context
        for each in self._workloads:
            await HangingTransactionCheck(context, each.named("hanging"), each.places).start()
        for host, each in zip(self._hosts, self._workloads, strict=True):
            await Inspector(context, each.named("inspector"), each.places).start()
            await host.stop()
            await host.bring_back()
            await Inspector(context, each.named("inspector"), each.places).start()
