"""One broker of a simulated world: started, stopped, killed, or cut from power.

It is `lakelog.server.app.Server` as it is shipped; only its environment is simulated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from doubles.faulty_store import FaultyStore
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.records import encode_records
from lakelog.metadata.store.api import MetadataStore, Snapshot
from lakelog.metadata.store.zookeeper.address import EnsembleAddress
from lakelog.runtime.api import Random, Tasks
from lakelog.server.app import Server
from lakelog.server.options import Environment, ServeOptions, StartError
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.engine.clock import SimulatedClock
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.engine.tasks import SimulatedTasks, StreamRandom
from simulator.machine.helper_processes import SimulatedHelpers
from simulator.machine.machine import Machine
from simulator.machine.page_cache import PageCachedDisk
from simulator.network.connection import ClientConnection
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet
from simulator.plan import EXPIRATION

DATA = Path("/data")
PORT = 9092
_OPEN_FILES_MAX = 24
_THREAD_S_MAX = 0.01
_STARTS_MAX = 20
_CALM_S = 13.0
"""The time after which a broker whose disk was full counts as writable again, and some more."""


class HostObserver(Protocol):
    """Called when a process of the broker starts, stops or dies, and after each step."""

    def on_started(self, host: BrokerHost) -> None: ...
    def on_stopping(self, host: BrokerHost) -> None: ...
    def on_death(self, host: BrokerHost, *, power: bool) -> None: ...
    def on_start_refused(self, host: BrokerHost, error: BaseException) -> None: ...
    def on_step(self, host: BrokerHost) -> None: ...


class ProcessStore(MetadataStore, Protocol):
    """The metadata store of one process."""

    def release(self) -> None:
        """Free the memory of a killed process, and have the other processes notice its death."""


class MetadataPlace(Protocol):
    """The place of a broker's metadata, which outlives its processes."""

    @property
    def location(self) -> Path | EnsembleAddress | None:
        """The value of the option `--metadata`; None for a store in the data folder."""

    def handle(self, tasks: Tasks, chance: Random, process: Process) -> ProcessStore:
        """Return the store of a new process."""


class BrokerHost:
    """One broker of the world, through all processes in which it runs.

    `settings` are the broker's, as text.
    """

    def __init__(
        self,
        simulator: Simulator,
        network: Network,
        machine: Machine,
        metadata: MetadataPlace,
        node_id: int,
        settings: Mapping[str, str],
        findings: Findings,
        observer: HostObserver,
    ) -> None:
        self._simulator = simulator
        self._network = network
        self._machine = machine
        self._metadata = metadata
        self._findings = findings
        self._observer = observer
        self.node_id = node_id
        self.rng: random.Random = simulator.random_stream(machine.name)
        self._store: ProcessStore | None = None
        self.settings = dict(settings)
        self.process: Process | None = None
        self.server: Server | None = None
        self.stopping: Server | None = None
        """The server while it stops: until its end it may still commit."""
        self.starts = 0
        self.is_removed = False
        """Whether no process will run here any more."""
        self.metadata_unknown_percent = 0
        """Of appends to the metadata log: how many have an unknown outcome."""
        self.helper_death = 0.0
        """Chance that a helper process dies, at each of its answers."""
        self.thread_s_max = _THREAD_S_MAX
        """How long offloaded work may take to begin, and its result to arrive, in seconds."""
        self._died: asyncio.Future[None] | None = None
        self._tasks: SimulatedTasks | None = None
        self._harmed_at = -_CALM_S - 1
        """When the disk was last seen to fail or to be full, in the loop's time."""

    @property
    def name(self) -> str:
        return self._machine.name

    @property
    def clock(self) -> SimulatedClock:
        return self._machine.clock

    @property
    def disk(self) -> PageCachedDisk:
        return self._machine.disk

    @property
    def has_sound_disk(self) -> bool:
        """Whether the disk works, and has done so long enough for the broker to trust it."""
        if not self.disk.is_sound:
            self._harmed_at = self._simulator.loop.time()
        return self._simulator.loop.time() - self._harmed_at > _CALM_S

    @property
    def has_slow_threads(self) -> bool:
        """Whether a fault delays offloaded work: each step of a start, and of its metadata."""
        return self.thread_s_max > _THREAD_S_MAX

    @property
    def producer_expiration_ms(self) -> int:
        return int(self.settings[EXPIRATION])

    @property
    def suffix(self) -> str:
        """The suffix of the names of its topics, groups and clients, unique in the world."""
        return f"-b{self.node_id}" if self.node_id > 1 else ""

    @property
    def address(self) -> tuple[str, int]:
        return self.name, PORT

    def connect(
        self, network: Network, process: Process, on_late: Callable[[str, float], None]
    ) -> ClientConnection:
        """Return a connection of a client to this broker."""
        return ClientConnection(network, process, self.address, on_late)

    @property
    def hosts(self) -> Sequence[BrokerHost]:
        """The broker itself: it is a cluster of one."""
        return (self,)

    @property
    def is_running(self) -> bool:
        """Whether the process exists; it may still be starting or stopping."""
        return self.process is not None

    def usable(self) -> set[Place]:
        """Return the partitions that are online."""
        partitions = self.server.broker.partitions if self.server is not None else ()
        return {(entry.topic, entry.index) for entry in partitions if entry.is_online}

    def log_ends(self) -> dict[Place, int]:
        """Return the log end offsets; empty while it is down, because a start may cut logs."""
        partitions = () if self.server is None else self.server.broker.partitions
        return {(entry.topic, entry.index): entry.log.log_end_offset for entry in partitions}

    def slow_threads(self, thread_s_max: float = _THREAD_S_MAX) -> None:
        """Have offloaded work take up to so many seconds, in this process and in later ones."""
        self.thread_s_max = thread_s_max
        if self._tasks is not None:
            self._tasks.delay_s_max = thread_s_max

    async def start(self) -> bool:
        """Start a process; return whether it serves.

        False if a fault killed it while it started, or the broker refused to start. Raises nothing:
        an unexpected error is recorded as a violation.
        """
        assert self.process is None, f"{self.name} runs already"
        assert not self.is_removed, f"{self.name} was removed"
        self.starts += 1
        process = self.process = Process(self.name)
        self._died = self._simulator.loop.create_future()
        server = Server(self._options(), self._environment(process))
        server.watch_failure(lambda: self._simulator.loop.call_soon(self._exit, process))
        starting = self._simulator.loop.create_task(server.start(), context=process.context())
        await asyncio.wait({starting, self._died}, return_when=asyncio.FIRST_COMPLETED)
        # A fault has killed this process, and may have started another one since.
        if not starting.done() or self.process is not process:
            return False
        error = starting.exception()
        if error is not None:
            if not isinstance(error, StartError):
                self._findings.violation(Law.STARTS, f"{self.name} failed to start: {error!r}")
            self._observer.on_start_refused(self, error)
            self.kill()
            return False
        self.server = server
        self._observer.on_started(self)
        return True

    def _options(self) -> ServeOptions:
        config = BrokerConfig(self.settings)
        return ServeOptions(
            DATA,
            config,
            f"{self.name}:{PORT}",
            node_id=self.node_id,
            metadata=self._metadata.location,
        )

    def _environment(self, process: Process) -> Environment:
        simulator = self._simulator
        tasks, chance = SimulatedTasks(simulator.loop, self.rng), StreamRandom(self.rng)
        tasks.delay_s_max = self.thread_s_max
        self._tasks = tasks
        store = self._store = self._metadata.handle(tasks, chance, process)
        faulty = FaultyStore(
            store, chance, unknown_percent=self.metadata_unknown_percent, delay_iterations_max=2
        )
        helpers = SimulatedHelpers(self.disk, self.rng, simulator.faults)
        helpers.death = self.helper_death
        return Environment(
            self.clock,
            self.disk,
            SimulatedNet(self._network, process),  # type: ignore[arg-type]
            tasks,
            chance,
            helpers,
            faulty,
            _OPEN_FILES_MAX,
        )

    async def stop(self) -> None:
        """Stop the broker in order; a fault may kill it meanwhile."""
        server, process = self.server, self.process
        if server is None or process is None:
            return
        assert self._died is not None
        self._observer.on_stopping(self)
        self.server, self.stopping = None, server
        stopping = self._simulator.loop.create_task(server.stop(), context=process.context())
        await asyncio.wait({stopping, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and stopping.exception() is not None:
            self._findings.violation(
                Law.STARTS, f"{self.name} failed to stop: {stopping.exception()!r}"
            )
        if self.process is process:
            self.kill()

    def kill(self, *, power: bool = False, torn: bool = False) -> None:
        """Kill the process at once.

        With `power` the page cache is lost; with `torn` some unsynced writes survive in part. Does
        nothing if no process runs.
        """
        process = self.process
        if process is None:
            return
        self._observer.on_death(self, power=power)
        process.kill()
        # Coroutines that are closed below run their `finally` blocks: the disk must reject them.
        self.disk.stop_at = self.disk.steps
        self._network.disconnect(process, silently=power)
        process.close_coroutines()
        if self._store is not None:
            self._store.release()
        if power:
            self.disk.crash(StreamRandom(self.rng) if torn else None)
        else:
            self.disk.kill()
        self.process = self.server = self.stopping = None
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    def _exit(self, process: Process) -> None:
        """End a process that has to stop by itself, as `lakelog serve` does, with status 6.

        A supervisor does not start it again.
        """
        if self.process is process:
            self._simulator.faults["exit"] += 1
            self.kill()

    async def write_snapshot(self) -> None:
        """Have the process write a snapshot of the metadata; only the controller's succeeds."""
        store, process = self._store, self.process
        if self.server is None or store is None or process is None:
            return
        image = self.server.broker.metadata.image
        snapshot = Snapshot(image.end, encode_records(image.to_records()))
        writing = self._simulator.loop.create_task(
            store.write_snapshot(snapshot), context=process.context()
        )
        assert self._died is not None
        await asyncio.wait({writing, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if writing.done() and not isinstance(writing.exception(), MetadataError | None):
            raise AssertionError("a snapshot was not written") from writing.exception()

    def pause(self) -> None:
        """Pause the process, as by SIGSTOP."""
        if self.process is not None:
            self.process.pause(self._simulator.loop.time())

    def resume(self) -> None:
        """End a pause of the process."""
        if self.process is not None and self.process.is_paused:
            self._simulator.loop.resume(self.process)

    def end_faults(self) -> None:
        """End a pause, and the faults of the disk and of the metadata; it may still be down."""
        self.resume()
        self.disk.stop_at = self.disk.capacity = None
        self.disk.forget_faults()
        self.metadata_unknown_percent = 0

    async def wait_for_death(self, timeout_s: float) -> None:
        """Wait until the process is killed, or for `timeout_s` seconds."""
        if self._died is not None:
            await asyncio.wait({self._died}, timeout=timeout_s)

    async def bring_back(self) -> None:
        """Start it if it is down, and repeat failed starts."""
        for _ in range(_STARTS_MAX):
            if self.is_removed or self.process is not None or await self.start():
                return
            await asyncio.sleep(0.5)
        self._findings.violation(Law.STARTS, f"{self.name} cannot be started any more")

    def on_step(self) -> None:
        """Have the observer check the step; die at the disk operation chosen by a fault."""
        self._observer.on_step(self)
        stop_at = self.disk.stop_at
        if stop_at is not None and self.disk.steps >= stop_at and self.process is not None:
            self.kill()
