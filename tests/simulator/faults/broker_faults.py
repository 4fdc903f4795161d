"""The faults that every world can have: of one broker, its connections and its clock, of clients.

They are of a single broker as well as of each broker of a cluster. A nemesis chooses among them.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from doubles.disk_faults import Operation, kind_of
from simulator.brokers.host import BrokerHost
from simulator.clients.pool import ClientPool
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.network.network import Network

Injector = Callable[[], Coroutine[Any, Any, None]]

_AT_AN_ACKNOWLEDGEMENT = 0.7
"""Chance that a power failure waits for an acknowledgement."""
_OPERATIONS: tuple[Operation, ...] = ("write", "sync", "read", "truncate", "name")
_GROWING = ("write", "truncate", "name")
_FREE_BYTES_MAX = 2_000
_TORN = 0.7
"""Chance that a power failure leaves some unsynced writes in part."""


class BrokerFaults:
    """Injects these faults into brokers drawn from `rng`.

    Args:
        come_back: starts a broker again, some time after its death.
    """

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        conditions: Conditions,
        hosts: Sequence[BrokerHost],
        pool: ClientPool,
        rng: random.Random,
        come_back: Callable[[BrokerHost], Awaitable[None]],
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._conditions = conditions
        self._hosts = hosts
        self._pool = pool
        self._rng = rng
        self._come_back = come_back

    @property
    def injectors(self) -> dict[str, Injector]:
        """By the names of the faults in a plan."""
        return {
            "kill": self._kill,
            "kill at a write": self._kill_at_a_write,
            "stop": self._stop,
            "reset": self._reset,
            "slow network": self._slow,
            "clock": self._clock,
            "client crash": self._crash_client,
        }

    def some_broker(self) -> BrokerHost:
        """Return a broker, which may be down."""
        return self._rng.choice(self._hosts)

    @property
    def client_names(self) -> list[str]:
        """The machines of clients."""
        return [client.name for client in self._pool.clients]

    async def await_acknowledgement(self) -> None:
        """Often wait for an acknowledgement, a few seconds at most."""
        if self._rng.random() < _AT_AN_ACKNOWLEDGEMENT:
            await self._conditions.next_acknowledgement(5.0)

    def cut_power(self, host: BrokerHost) -> None:
        """Kill a broker whose machine loses its page cache, and leave the machine down."""
        self._network.down.add(host.name)
        host.kill(power=True, torn=self._rng.random() < _TORN)

    async def fill_disk(self, seconds: Callable[[], float]) -> None:
        """Leave a broker little room on its disk for so many seconds, which are drawn last."""
        disk = self.some_broker().disk
        disk.capacity = disk.used + self._rng.randrange(_FREE_BYTES_MAX)
        await asyncio.sleep(seconds())
        disk.capacity = None

    async def fail_disk(
        self,
        seconds: Callable[[], float],
        *,
        times: Sequence[int],
        passing: frozenset[str] = frozenset(),
        no_space: float = 0.0,
    ) -> BrokerHost:
        """Fail operations on a kind of file of one broker; return it, killed.

        Args:
            seconds: draws, as the last one, how long.
            times: how many operations may fail.
            passing: suffixes to choose among beside the suffixes of files on the disk.
            no_space: chance that an operation which needs space fails for lack of it.
        """
        host, rng = self.some_broker(), self._rng
        operation = rng.choice(_OPERATIONS)
        lacks_space = no_space > 0 and operation in _GROWING and rng.random() < no_space
        present = {kind_of(path) for path in host.disk.files()}
        host.disk.fail(
            operation,
            errno.ENOSPC if lacks_space else errno.EIO,
            suffix=rng.choice(("", ".log", rng.choice(sorted(present | passing)))),
            skip=rng.randrange(4),
            partial=rng.randrange(100),
            times=rng.choice(times),
        )
        await asyncio.sleep(seconds())
        host.disk.forget_faults()
        self._simulator.faults.update(host.disk.faults.taken)
        host.disk.faults.taken.clear()
        host.kill()
        return host

    async def _kill(self) -> None:
        host = self.some_broker()
        host.kill()
        await self._come_back(host)

    async def _kill_at_a_write(self) -> None:
        """Kill a broker at one of its next operations on disk."""
        host = self.some_broker()
        if not host.is_running:
            return
        host.disk.stop_at = host.disk.steps + self._rng.randrange(60)
        await host.wait_for_death(10.0)
        host.kill()
        await self._come_back(host)

    async def _stop(self) -> None:
        host = self.some_broker()
        await host.stop()
        await self._come_back(host)

    async def _reset(self) -> None:
        host = self.some_broker()
        sockets = host.process.sockets if host.process is not None else []
        for socket in list(sockets):
            if self._rng.random() < 0.4:
                self._network.reset(socket)

    async def _slow(self) -> None:
        self._network.slow_down()
        await asyncio.sleep(1 + self._rng.random() * 5)
        self._network.restore_speed()

    async def _clock(self) -> None:
        clock = self.some_broker().clock
        self._conditions.leapt_at = self._simulator.loop.time()
        clock.leap(self._rng.choice((-1, 1)) * self._rng.choice((50, 5_000, 600_000)))

    async def _crash_client(self) -> None:
        clients = self._pool.clients
        if clients:
            self._pool.crash(self._rng.randrange(len(clients)))
