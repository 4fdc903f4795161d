"""The nemesis: it injects one fault of the plan after another, at random times."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Mapping, Sequence

from doubles.disk_faults import Operation, kind_of
from lakelog.storage.folder.known_logs import KNOWN_LOGS
from simulator.brokers.host import DATA, BrokerHost
from simulator.clients.pool import ClientPool
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.faults.bit_flips import BitFlips
from simulator.faults.broker_faults import BrokerFaults
from simulator.faults.derived_files import derived_files, flip_in_one
from simulator.faults.injections import Injections
from simulator.network.network import Network
from simulator.plan import FAULTS, HARMLESS, Plan

_PASSING = frozenset({".tmp", ".cleaned", ".swap", ".deleted"})
"""Suffixes of files that exist for a moment."""

_KNOWN_LOGS = 0.3
"""Chance that a bit flips in `known-logs`: the broker must then do with Kafka's own files."""

_MAY_CUT = frozenset({"plain", "orders", "trimmed", "events"})
"""Topics whose ends may be lost: no coordinator depends on their records."""


class Nemesis:
    """Injects the faults of a plan; `execution` ends them. The name is Jepsen's."""

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        plan: Plan,
        conditions: Conditions,
        hosts: Sequence[BrokerHost],
        bit_flips: Mapping[str, BitFlips],
        pool: ClientPool,
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._plan = plan
        self._hosts = hosts
        self._bit_flips = bit_flips
        self._pool = pool
        self._rng: random.Random = simulator.random_stream("nemesis")
        self._faults = BrokerFaults(
            simulator, network, conditions, hosts, pool, self._rng, self._come_back
        )
        injectors = self._faults.injectors | {
            "power": self._power,
            "partition": self._partition,
            "disk full": self._disk_full,
            "disk error": self._disk_error,
        }
        # In the order of the plan's list: a choice among them then depends on the plan alone.
        self._names = [name for name in FAULTS if name in plan.faults and name in injectors]
        self._injections = Injections(
            simulator, conditions, self._rng, injectors, harmless=HARMLESS
        )

    async def run(self) -> None:
        """Inject faults for the plan's time; if the plan kills brokers, until one has died."""
        await self._injections.run(self._names, self._simulator.loop.time() + self._plan.seconds)

    async def _power(self) -> None:
        """Cut the power, often right after an acknowledgement, before the next sync."""
        host = self._faults.some_broker()
        await self._faults.await_acknowledgement()
        self._faults.cut_power(host)
        await asyncio.sleep(self._rng.random() * 2)
        if "stop" in self._plan.faults and self._rng.random() < 0.5:
            await host.bring_back()
            await host.stop()  # in order, before any client reached it
        self._network.down.discard(host.name)
        await self._come_back(host)

    async def _come_back(self, host: BrokerHost) -> None:
        await asyncio.sleep(self._rng.random() * 3)
        if "flipped bit" in self._plan.faults and self._rng.random() < 0.5:
            self._flip(host)
        if "flipped record" in self._plan.faults and self._rng.random() < 0.5:
            flipped = self._bit_flips[host.name].flip_record(self._rng, _MAY_CUT)
            self._simulator.faults["flipped record"] += flipped
        await host.bring_back()

    def _flip(self, host: BrokerHost) -> None:
        """Flip one bit of a file that the broker can rebuild."""
        found, known = derived_files(host), DATA / KNOWN_LOGS
        if host.disk.exists(known) and self._rng.random() < _KNOWN_LOGS:
            found = [known]
        self._simulator.faults["flipped bit"] += flip_in_one(host, found, self._rng)

    async def _partition(self) -> None:
        """Cut some clients off from a broker, in one direction or both."""
        host, net = self._faults.some_broker(), self._network
        for client in self._pool.clients:
            if self._rng.random() < 0.5:
                ways = [(host.name, client.name), (client.name, host.name)]
                for way in ways if self._rng.random() < 0.5 else [self._rng.choice(ways)]:
                    net.cut(*way)
        await asyncio.sleep(self._rng.random() * 8)
        net.heal()

    async def _disk_full(self) -> None:
        disk = self._faults.some_broker().disk
        disk.capacity = disk.used + self._rng.randrange(2_000)
        await asyncio.sleep(1 + self._rng.random() * 3)
        disk.capacity = None

    async def _disk_error(self) -> None:
        """Fail operations on a kind of file; the broker may need a restart to use a log again."""
        host = self._faults.some_broker()
        kinds: tuple[Operation, ...] = ("write", "sync", "read", "truncate", "name")
        operation = self._rng.choice(kinds)
        has_no_capacity = operation in ("write", "truncate", "name") and self._rng.random() < 0.3
        present = {kind_of(path) for path in host.disk.files()}
        host.disk.fail(
            operation,
            errno.ENOSPC if has_no_capacity else errno.EIO,
            suffix=self._rng.choice(("", ".log", self._rng.choice(sorted(present | _PASSING)))),
            skip=self._rng.randrange(4),
            partial=self._rng.randrange(100),
            times=self._rng.choice((1, 1, 3, 100)),
        )
        await asyncio.sleep(2 + self._rng.random() * 4)
        host.disk.forget_faults()
        self._simulator.faults.update(host.disk.faults.taken)
        host.disk.faults.taken.clear()
        host.kill()
        await self._come_back(host)
