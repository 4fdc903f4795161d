"""The run of a world with a cluster."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from simulator.checkers.laws import Law
from simulator.clients.inspector import Inspector
from simulator.cluster.pulse import Pulse
from simulator.cluster.world import ClusterWorld
from simulator.execution import Execution, WorldOutcome
from simulator.workloads import Workloads
from waiting import EventTimeoutError, until

_POLL_S = 0.1
_HEALING_S = 30.0


def run_cluster(world: ClusterWorld) -> WorldOutcome:
    """Run a world once, and return what its checkers found. Raises nothing but bugs of its own."""
    return _ClusterExecution(world).run()


class _ClusterExecution(Execution):
    def __init__(self, world: ClusterWorld) -> None:
        super().__init__(world)
        self._cluster = world
        self._brokers, self._observer = world.brokers, world.observer
        self._workloads = Workloads(world.context, world.brokers)
        self._pulse = Pulse(world.context, world.brokers, lambda: world.image)

    async def _start(self) -> None:
        await asyncio.gather(*(host.start() for host in self._hosts))
        await until(lambda: self._brokers.are_unfenced, every_s=_POLL_S)
        await self._workloads.create()
        await self._loop.create_task(self._pulse.create(), context=self._pulse.process.context())
        for host in self._hosts:
            host.disk.write_back()
        self._pool.start(self._workloads.clients)
        self._beating = self._pulse.start()

    async def _repair(self) -> None:
        """End all faults, and bring back the brokers that are down."""
        self._world.conditions.is_troubled = False
        self._simulator.trace("peace")
        self._world.network.restore_speed()
        self._world.network.heal()
        for host in self._hosts:
            host.resume()
            host.disk.stop_at = host.disk.capacity = None
            host.disk.forget_faults()
            host.slow_threads()
        await asyncio.gather(*(host.bring_back() for host in self._hosts))
        await self._heal()

    async def _heal(self) -> None:
        """Wait until every ISR is complete."""
        with suppress(EventTimeoutError):
            await until(self._has_healed, _HEALING_S, every_s=_POLL_S)
        self._findings.expect(
            Law.HEALS,
            self._is_healed,
            f"{_HEALING_S} s after the last fault: {self._observer.images.lacking}",
        )

    async def _has_healed(self) -> bool:
        """Start the brokers that have ended because a client unregistered them while fenced."""
        registered = self._cluster.image.brokers
        for host in self._hosts:
            if not host.is_running and host.node_id not in registered:
                await host.bring_back()
        return self._is_healed

    @property
    def _is_healed(self) -> bool:
        return self._cluster.is_healed

    async def _check(self) -> None:
        """Read every partition to its end, before and after a clean restart of each broker."""
        await self._beating
        await self._inspect()
        for host in self._hosts:
            await host.stop()
            await host.bring_back()
        await self._inspect()

    def _kill_all(self) -> None:
        super()._kill_all()
        self._pulse.process.kill()
        self._pulse.process.close_coroutines()

    async def _inspect(self) -> None:
        workloads = self._workloads
        inspector = Inspector(self._world.context, "inspector", workloads.places)
        await inspector.start()
