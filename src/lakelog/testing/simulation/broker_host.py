"""A machine that runs the production broker: started, stopped, killed, cut from power.

The broker is `lakelog.server.app.Server` as it is shipped; only what is outside of it is simulated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.store.embedded import METADATA_FILE
from lakelog.server.app import ServeOptions, Server, StartError
from lakelog.server.environment import Environment
from lakelog.testing.metadata import FaultyStore
from lakelog.testing.simulation.children import SimulatedProcesses
from lakelog.testing.simulation.laws import Law
from lakelog.testing.simulation.ledger import Place
from lakelog.testing.simulation.page_cache import HostDisk
from lakelog.testing.simulation.process import Process
from lakelog.testing.simulation.seams import ChanceRandom, SimulatedClock, SimulatedTasks
from lakelog.testing.simulation.sockets import SimulatedNet
from lakelog.testing.sqlite_metadata import SimulatedMetadata, SimulatedStore

if TYPE_CHECKING:
    from lakelog.testing.simulation.world import World

logger = logging.getLogger(__name__)

DATA = Path("/data")
PORT = 9092
_OPEN_FILES_MAX = 24
_THREAD_S_MAX = 0.01


class BrokerHost:
    """`settings` are the broker's, as text."""

    def __init__(self, world: World, node_id: int, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.name = f"broker-{node_id}"
        self.world = world
        self.rng: random.Random = world.chance(self.name)
        self.clock = SimulatedClock(world.loop)
        self.disk = HostDisk(self.clock, world.chance(f"{self.name} page cache"), world.faults)
        self.metadata = SimulatedMetadata(self.disk, DATA / METADATA_FILE)
        self._store: SimulatedStore | None = None
        self.settings = dict(settings)
        self.process: Process | None = None
        self.server: Server | None = None
        self.starts = 0
        self.metadata_unknown_percent = 0
        self.helper_death = 0.0
        self.thread_s_max = _THREAD_S_MAX
        """How long work in a thread takes at most to begin, and to be told of."""
        self._died: asyncio.Future[None] | None = None

    @property
    def suffix(self) -> str:
        """Of the names of its topics, groups and clients, which the world keeps in one ledger."""
        return f"-b{self.node_id}" if self.node_id > 1 else ""

    @property
    def address(self) -> tuple[str, int]:
        return self.name, PORT

    @property
    def is_running(self) -> bool:
        """Alive, be it that it still starts or stops."""
        return self.process is not None

    def usable(self) -> set[Place]:
        """The partitions that it serves."""
        partitions = self.server.broker.partitions if self.server is not None else ()
        return {(entry.topic, entry.index) for entry in partitions if entry.is_online}

    async def start(self) -> bool:
        """Whether it serves now; it may have been killed while it started, or been refused."""
        assert self.process is None, f"{self.name} runs already"
        self.starts += 1
        process = self.process = Process(self.name)
        self._died = self.world.loop.create_future()
        server = Server(self._options(), self._outside(process))
        starting = self.world.loop.create_task(server.start(), context=process.context())
        await asyncio.wait({starting, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done() or self.process is not process:
            return False
        error = starting.exception()
        if error is not None:
            if not isinstance(error, StartError):
                self.world.ledger.violation(Law.STARTS, f"{self.name} failed to start: {error!r}")
            self.world.on_start_refused(self, error)
            self.kill()
            return False
        self.server = server
        self.world.on_started(self)
        return True

    def _options(self) -> ServeOptions:
        config = BrokerConfig(self.settings)
        return ServeOptions(DATA, config, f"{self.name}:{PORT}", node_id=self.node_id)

    def _outside(self, process: Process) -> Environment:
        world = self.world
        tasks, chance = SimulatedTasks(world.loop, self.rng), ChanceRandom(self.rng)
        tasks.delay_s_max = self.thread_s_max
        store = self._store = self.metadata.handle(tasks, lambda: process.alive)
        faulty = FaultyStore(
            store, chance, unknown_percent=self.metadata_unknown_percent, delay_turns_max=2
        )
        helpers = SimulatedProcesses(self.disk, self.rng, world.faults)
        helpers.death = self.helper_death
        return Environment(
            self.clock,
            self.disk,
            SimulatedNet(world.net, process),  # type: ignore[arg-type]
            tasks,
            chance,
            helpers,
            faulty,
            _OPEN_FILES_MAX,
        )

    async def stop(self) -> None:
        """A clean stop, unless it is killed meanwhile."""
        server, process = self.server, self.process
        if server is None or process is None:
            return
        assert self._died is not None
        self.world.on_stopping(self)
        self.server = None
        stopping = self.world.loop.create_task(server.stop(), context=process.context())
        await asyncio.wait({stopping, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and stopping.exception() is not None:
            self.world.ledger.violation(
                Law.STARTS, f"{self.name} failed to stop: {stopping.exception()!r}"
            )
        if self.process is process:
            self.kill()

    def kill(self, *, power: bool = False, torn: bool = False) -> None:
        """At once. Without `power` the page cache survives; `torn` keeps some of the rest."""
        process = self.process
        if process is None:
            return
        self.world.on_death(self, power=power)
        process.die()
        self.disk.stop_at = self.disk.steps
        self.world.net.vanish(process, silently=power)
        process.bury()
        if self._store is not None:
            self._store.bury()
        if power:
            self.disk.crash(ChanceRandom(self.rng) if torn else None)
        else:
            self.disk.kill()
        self.process = self.server = None
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    async def wait_for_death(self, timeout_s: float) -> None:
        if self._died is not None:
            await asyncio.wait({self._died}, timeout=timeout_s)

    def on_step(self) -> None:
        """Dies where the disk was told to stop."""
        stop_at = self.disk.stop_at
        if stop_at is not None and self.disk.steps >= stop_at and self.process is not None:
            self.kill()
