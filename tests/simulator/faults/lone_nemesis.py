"""The nemesis of brokers without a cluster: it injects one fault of the plan after another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from lakelog.storage.folder.known_logs import KNOWN_LOGS
from simulator.brokers.host import DATA, BrokerHost
from simulator.clients.pool import ClientPool
from simulator.conditions import Conditions
from simulator.engine.simulator import Simulator
from simulator.faults.bit_flips import BitFlips
from simulator.faults.broker_faults import Injector
from simulator.faults.derived_files import derived_files, flip_in_one
from simulator.faults.nemesis import Nemesis
from simulator.network.network import Network
from simulator.plan import FAULTS, HARMLESS, Plan

_PASSING = frozenset({".tmp", ".cleaned", ".swap", ".deleted"})
"""Suffixes of files that exist for a moment."""

_NO_SPACE = 0.3
"""Chance that a disk error says that the disk is full."""

_KNOWN_LOGS = 0.3
"""Chance that a bit flips in `known-logs`: the broker must then do with Kafka's own files."""

_MAY_CUT = frozenset({"plain", "orders", "trimmed", "events"})
"""Topics whose ends may be lost: no coordinator depends on their records."""


class LoneNemesis(Nemesis):
    """Injects the faults of a plan into brokers that are clusters by themselves.

    Such a broker may lose records for good, which no cluster may: the last synced ones, if the plan
    is not durable, and records with flipped bits.
    """

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        plan: Plan,
        conditions: Conditions,
        hosts: Sequence[BrokerHost],
        pool: ClientPool,
        bit_flips: Mapping[str, BitFlips],
    ) -> None:
        super().__init__(simulator, network, plan, conditions, hosts, pool)
        self._plan = plan
        self._bit_flips = bit_flips
        own: dict[str, Injector] = {
            "power": self._power,
            "partition": self._partition,
            "disk full": self._disk_full,
            "disk error": self._disk_error,
        }
        self._choose(plan.faults, FAULTS, own, HARMLESS)

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
        await self._faults.fill_disk(lambda: 1 + self._rng.random() * 3)

    async def _disk_error(self) -> None:
        """Fail operations on a kind of file; the broker may need a restart to use a log again."""
        host = await self._faults.fail_disk(
            lambda: 2 + self._rng.random() * 4,
            times=(1, 1, 3, 100),
            passing=_PASSING,
            no_space=_NO_SPACE,
        )
        await self._come_back(host)
