"""One seed's world: brokers, clients, the network between them, faults, and the laws that hold.

The brokers are the production code, the rest is simulated. Everything that is left to chance is
drawn from the seed, and all that happens goes into `hash`: the same seed gives the same hash.
Several `brokers` share a network, and each has a disk, a clock, metadata and clients of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakelog.coordinator.group.coordinator import GroupCoordinator
from lakelog.coordinator.transaction import state
from lakelog.testing.simulation.broker_host import DATA, BrokerHost
from lakelog.testing.simulation.cast import Cast
from lakelog.testing.simulation.clients.client import Client
from lakelog.testing.simulation.clients.groups import GroupClient
from lakelog.testing.simulation.clients.hanging import HangingWatch
from lakelog.testing.simulation.damage import Damages
from lakelog.testing.simulation.inspection import Inspection
from lakelog.testing.simulation.laws import Law
from lakelog.testing.simulation.ledger import Ledger, Place
from lakelog.testing.simulation.log_watch import LogWatch
from lakelog.testing.simulation.loop import SimulatedLoop, Stuck
from lakelog.testing.simulation.members_ledger import MembersLedger
from lakelog.testing.simulation.nemesis import Nemesis
from lakelog.testing.simulation.network import Network
from lakelog.testing.simulation.offsets_ledger import OffsetsLedger
from lakelog.testing.simulation.plan import COLD_READS, DEATHS, EXPIRATION, SLOW_DISK, Plan, plan_of
from lakelog.testing.simulation.seams import WALL_START_MS
from lakelog.testing.simulation.settling import settle
from lakelog.testing.simulation.watcher import Cut, Watcher
from lakelog.testing.sqlite_vfs import seed_sqlite

_COLD = 0.3
_SLOW_THREAD_S_MAX = 0.2
_ACKED_MIN = 10
_STAYS_AWAY = 0.4
"""Chance that a member of a group which dies does not come back."""
_PEACE_S = 3.0
_TRANSACTIONS_MAX = 10_000
"""No client of a world ends so many: it uses up epochs only where a test leaves it fewer."""
_LOSING = frozenset({"disk error", "disk full", "flipped bit", "flipped record"})
"""Faults that may have a broker distrust its page cache, or find less in its logs."""
_LINGERING_S = 1.5
"""How long after a disturbance a broker may have to catch up, and bytes be on their way."""
_PATIENCE_S = 300.0
"""Of virtual time: whoever has not come to an end by then never will."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed; `hash` is of all that happened."""

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
        """Whether no broker died, or next to nothing was acknowledged: it shows little."""
        deaths = sum(self.faults.get(name, 0) for name in DEATHS)
        return not deaths or self.counts.get("acked", 0) < _ACKED_MIN


class World:
    """`plan` is the seed's own unless another one is given."""

    def __init__(self, seed: int, plan: Plan | None = None, *, brokers: int = 1) -> None:
        self.seed = seed
        self.plan = plan if plan is not None else plan_of(seed)
        self._hash = hashlib.blake2b(digest_size=16)
        self.loop = SimulatedLoop(self.chance("loop"))
        self.net = Network(self.loop, self.chance("network"), self.trace)
        self.faults: Counter[str] = self.net.faults
        self.ledger = Ledger()
        self.ledger.forgets = self._may_have_forgotten
        self.offsets = OffsetsLedger(self.ledger)
        self.members = MembersLedger(self.ledger)
        self._disturbances = 0
        self._disturbed_at = 0.0
        self._promised: asyncio.Future[None] | None = None
        self.ledger.on_promise = self._on_promise
        self.is_troubled = True
        """Until peace comes."""
        self.clients: list[Client] = []
        self._living: list[asyncio.Task[None]] = []
        self.lost_members: list[GroupClient] = []
        """Those that died, and never come back."""
        self._fates = self.chance("fates")
        self.is_settling = False
        """Whether members of groups come and go no more."""
        self.is_ending = False
        self.leapt_at = -1.0
        """When a wall clock was last changed."""
        self.cut_at = -1.0
        """When a log was last found without its end."""
        self.producers: set[tuple[str, int, int]] = set()
        """By the broker that has given them out."""
        self._transactional: dict[tuple[str, str], tuple[int, float]] = {}
        """Producer ids by broker and transactional id, and since when they are asked for."""
        self._lost_at: dict[str, float] = {}
        """When a broker last lost its page cache, or died before it had found all that it had."""
        self._watchers: dict[str, Watcher] = {}
        self.damages: dict[str, Damages] = {}
        self._disk_steps: dict[str, int] = {}
        self._power: set[str] = set()
        self.brokers = [
            BrokerHost(self, number, self.plan.settings) for number in range(1, brokers + 1)
        ]
        for host in self.brokers:
            damages = Damages(host.disk, DATA, self.ledger, self.plan.index_interval)
            self.damages[host.name] = damages
            self._watchers[host.name] = Watcher(self.ledger, damages)
            if "metadata" in self.plan.faults:
                host.metadata_unknown_percent = 20
            if COLD_READS in self.plan.faults:
                host.disk.cold = _COLD
            if SLOW_DISK in self.plan.faults:
                host.thread_s_max = _SLOW_THREAD_S_MAX
            if "helper death" in self.plan.faults:
                host.helper_death = 0.2

    def chance(self, name: str) -> random.Random:
        """A stream of chance of its own, so that one part's draws do not move another's."""
        return random.Random(f"{self.seed} {name}")

    def trace(self, *event: Any) -> None:
        self._hash.update(repr((self.loop.steps, event)).encode())

    def run(self) -> Outcome:
        seed_sqlite(self.seed)
        with LogWatch(self.ledger):
            self.loop.on_step = self._on_step
            self.loop.set_exception_handler(self._on_exception)
            asyncio.set_event_loop(self.loop)
            try:
                self.loop.run_until_complete(asyncio.wait_for(self._live(), _PATIENCE_S))
            except (TimeoutError, Stuck) as error:
                waiting = [task.get_name() for task in self._living if not task.done()]
                self.ledger.violation(
                    Law.RESTS, f"the world does not come to rest ({error!r}): {waiting}"
                )
            finally:
                self._bury()
                asyncio.set_event_loop(None)
                self.loop.close()
        self.trace("end", self.loop.time(), sorted(self.ledger.counts.items()))
        return Outcome(
            self.seed,
            tuple(self.ledger.violations),
            frozenset(self.ledger.broken),
            self._hash.hexdigest(),
            self.loop.steps,
            self.loop.time(),
            dict(self.faults),
            dict(self.ledger.counts),
        )

    async def _live(self) -> None:
        for host in self.brokers:
            await host.start()
        casts = [Cast(self, self.plan, host) for host in self.brokers]
        for cast, host in zip(casts, self.brokers, strict=True):
            await cast.set_the_stage()
            host.disk.write_back()
        self.clients = [client for cast in casts for client in cast.clients]
        self._living = [client.start() for client in self.clients]
        await Nemesis(self, self.plan).run()
        await self._heal()
        await asyncio.sleep(_PEACE_S)
        self.is_settling = True
        await settle(self)
        self.is_ending = True
        for task in self._living:
            await asyncio.wait({task})
        for cast in casts:
            await HangingWatch(self, cast.named("hanging"), cast.places).start()
        for cast, host in zip(casts, self.brokers, strict=True):
            await Inspection(self, cast.named("inspector"), cast.places, host).run()

    def _bury(self) -> None:
        for host in self.brokers:
            host.kill()
        for client in self.clients:
            client.process.die()
            client.process.bury()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()

    # What clients and hosts ask

    def home_of(self, name: str) -> BrokerHost:
        """The broker to which a client or a group of this name belongs."""
        base = name.partition("'")[0]
        return next(host for host in reversed(self.brokers) if base.endswith(host.suffix))

    @property
    def starts(self) -> int:
        """How often brokers were started by now."""
        return sum(host.starts for host in self.brokers)

    def ends(self, host: BrokerHost) -> dict[Place, int]:
        """Where its logs end, if it runs; otherwise they may have any end by the next start."""
        partitions = () if host.server is None else host.server.broker.partitions
        return {(entry.topic, entry.index): entry.log.log_end_offset for entry in partitions}

    def _may_have_forgotten(self, place: Place, since: float) -> bool:
        host = self.home_of(place[0])
        return host.clock.spread_ms(since) >= int(self.plan.settings[EXPIRATION])

    def wall_ms(self) -> int:
        return WALL_START_MS + int(self.loop.time() * 1000)

    async def next_promise(self, timeout_s: float) -> None:
        """Waits until a client has been told that something is done."""
        self._promised = self.loop.create_future()
        await asyncio.wait({self._promised}, timeout=timeout_s)

    def _on_promise(self) -> None:
        if self._promised is not None and not self._promised.done():
            self._promised.set_result(None)

    @contextlib.contextmanager
    def disturbing(self) -> Iterator[None]:
        """While this is entered, clients may wait for their broker."""
        self._disturbances += 1
        try:
            yield
        finally:
            self._disturbances -= 1
            self._disturbed_at = self.loop.time()

    def was_disturbed(self, since: float) -> bool:
        """Whether anything may have kept a client from its broker since a time."""
        return self._disturbances > 0 or self._disturbed_at + _LINGERING_S >= since

    def is_new_producer(self, host: BrokerHost, producer_id: int, epoch: int) -> bool:
        is_new = (host.name, producer_id, epoch) not in self.producers
        self.producers.add((host.name, producer_id, epoch))
        return is_new

    def may_be_producer(
        self, host: BrokerHost, transactional_id: str, producer_id: int, asked_at: float
    ) -> bool:
        """Whether the id is that of before, or nobody can be sure what was given out since."""
        key = host.name, transactional_id
        before, since = self._transactional.get(key, (producer_id, asked_at))
        self._transactional[key] = producer_id, asked_at
        if before == producer_id or state.EPOCH_LAST < _TRANSACTIONS_MAX:
            return True
        lost_at = max(self._lost_at.get(host.name, -1.0), self.leapt_at, self.cut_at)
        return since <= lost_at or not _LOSING.isdisjoint(self.plan.faults)

    # What happens to brokers

    def on_started(self, host: BrokerHost) -> None:
        assert host.server is not None
        partitions = list(host.server.broker.partitions)
        power = host.name in self._power
        self._power.discard(host.name)
        cuts = self._watchers[host.name].compare(partitions, power=power)
        forgiven = [self._forgive(place, cut) for place, cut in cuts.items()]
        self.damages[host.name].on_started()
        if any(forgiven):
            self.cut_at = self.loop.time()
            self._lose_late_answers()
        self.trace("started", host.name, host.disk.steps)

    def _forgive(self, place: Place, cut: Cut) -> bool:
        """Whether what lay behind the end may be missing: the page cache was trusted with it, or a
        bit of it has flipped.

        In a durable world only the clients' word counts, not the broker's recovery point.
        """
        if self.plan.is_durable:
            self.ledger.check_durable(place, cut.end, cut.damaged_at)
        if not cut.allowed or (self.plan.is_durable and cut.damaged_at is None):
            return False
        self.ledger.cut(place, cut.end)
        self.offsets.cut(place, cut.end)
        self.members.cut(place)
        return True

    def _lose_late_answers(self) -> None:
        """What a broker has told of records that are lost comes before that, or not at all."""
        for client in self.clients:
            for socket in list(client.process.sockets):
                if not socket.other.process.alive:
                    self.net.reset(socket)

    def on_stopping(self, host: BrokerHost) -> None:
        self._look(host)

    def on_death(self, host: BrokerHost, *, power: bool) -> None:
        self.trace("death", host.name, power, host.disk.steps)
        self._look(host)
        if power or host.server is None:
            self._lost_at[host.name] = self.loop.time()
        if power:
            self._power.add(host.name)

    def _look(self, host: BrokerHost) -> None:
        if host.server is not None:
            partitions = list(host.server.broker.partitions)
            self._watchers[host.name].check(partitions)
            self._watchers[host.name].remember(partitions)

    def on_start_refused(self, host: BrokerHost, error: BaseException) -> None:
        self.trace("refused", str(error))
        if not {"disk error", "disk full"} & self.plan.faults:
            self.ledger.violation(Law.STARTS, f"{host.name} does not start: {error}")

    async def bring_back(self, host: BrokerHost) -> None:
        """Starts it, again and again if need be."""
        for _ in range(20):
            if host.process is not None or await host.start():
                return
            await asyncio.sleep(0.5)
        self.ledger.violation(Law.STARTS, f"{host.name} cannot be started any more")

    def crash_client(self, number: int) -> None:
        client = self.clients[number]
        if self._living[number].done():
            return
        client.process.die()
        self.net.vanish(client.process, silently=False)
        client.process.bury()
        if isinstance(client, GroupClient) and self._may_stay_away(client):
            self.lost_members.append(client)
            del self.clients[number], self._living[number]
            return
        successor = self.clients[number] = client.replaced()
        self._living[number] = successor.start()

    def _may_stay_away(self, client: GroupClient) -> bool:
        """Whether nobody takes its place: others in its group then have to do without it."""
        others = [one for one in self.clients if isinstance(one, GroupClient) and one is not client]
        is_alone = all(one.group != client.group for one in others)
        return not is_alone and client.may_vanish and self._fates.random() < _STAYS_AWAY

    # Laws

    def _on_step(self) -> None:
        for host in self.brokers:
            steps = host.disk.steps
            if host.server is not None and steps != self._disk_steps.get(host.name):
                self._disk_steps[host.name] = steps
                self._watchers[host.name].check(list(host.server.broker.partitions))
            if host.server is not None and host.server.broker.groups.loading:
                self._note_loading(host, host.server.broker.groups)
            host.on_step()

    def _note_loading(self, host: BrokerHost, groups: GroupCoordinator) -> None:
        for group in self.members.static_groups:
            if self.home_of(group) is host and groups.partition_for(group) in groups.loading:
                self.members.loads(group, self.loop.time())

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        LogWatch.judge(self.ledger, context["message"], context.get("exception"))

    # Peace

    def calm_network(self) -> None:
        self.net.delay_s, self.net.stall_chance, self.net.partial_chance = (
            (0.000_1, 0.002),
            0.0,
            0.05,
        )

    async def _heal(self) -> None:
        """All faults end, and a broker that has given up a partition is started again."""
        with self.disturbing():
            await self._repair()

    async def _repair(self) -> None:
        self.is_troubled = False
        self.trace("peace")
        self.calm_network()
        self.net.heal()
        for host in self.brokers:
            host.disk.capacity = None
            host.disk.stop_at = None
            host.disk.forget_faults()
            host.metadata_unknown_percent = 0
            if host.process is not None:
                host.kill()
            damages = self.damages[host.name]
            damages.repair(self.chance("repair"))
            await self.bring_back(host)
            if damages.repair_others(host.usable()):
                host.kill()
                await self.bring_back(host)
