"""Two brokers, one of which calls the other over a network that delays, cuts and resets.

They share a metadata file: only registered processes answer each other.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from doubles.disk import MemoryDisk
from doubles.sqlite_vfs import seed_sqlite
from lakelog.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse
from lakelog.server.inter_broker.exchange import (
    PeerDisconnectedError,
    PeerError,
    PeerTimedOutError,
    PeerUnreachableError,
)
from lakelog.server.inter_broker.watch import PATIENCE_S, PERIOD_S, PeerWatch, Reach
from simulator.brokers.host import DATA, BrokerHost, MetadataPlace
from simulator.brokers.places import OwnPlace
from simulator.checkers.logged_errors import LoggedErrors
from simulator.cluster.plan import SESSION_S
from simulator.cluster.shared_file import SharedFile
from simulator.engine.clock import SimulatedClock
from simulator.engine.process import Process
from simulator.machine.machine import Machine
from simulator.network.sockets import Address, SimulatedSocket
from simulator.plan import Plan
from simulator.world import World
from waiting import until

T = TypeVar("T")

SOON_S = PERIOD_S + 2 * PATIENCE_S + 8.0
"""In which a change of the network or of a broker is noticed, with an attempt to connect."""
LONG_S = 300.0
QUIET = Plan(1.0, frozenset(), frozenset())


class Neighbours(World):
    """Brokers of one cluster, without clients."""

    def __init__(self, seed: int, plan: Plan) -> None:
        self._shared: SharedFile | None = None
        super().__init__(seed, plan, brokers=2)
        self.first, self.second = self.brokers.hosts

    def _place(self, machine: Machine) -> MetadataPlace:
        if self._shared is None:
            loop = self.simulator.loop
            self._shared = SharedFile(loop, MemoryDisk(SimulatedClock(loop)), SESSION_S)
        return self._shared

    async def start(self) -> None:
        for host in self.brokers.hosts:
            assert await host.start()

    async def give_away(self, host: BrokerHost) -> None:
        """Kill a broker, and start one of another cluster, with its node id, at its address."""
        host.kill()
        host.disk.remove_tree(DATA)
        host._metadata = OwnPlace(host.disk)
        assert await host.start()

    async def suffer(self) -> None:
        """Let faults happen, and end them."""
        await self.nemesis.run()
        self.network.restore_speed()
        self.network.heal()
        for host in self.brokers.hosts:
            await host.bring_back()

    def inside(self, host: BrokerHost, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` as a part of the broker's process."""
        assert host.process is not None
        return self.simulator.loop.create_task(work, context=host.process.context())


Scenario = Callable[[Neighbours], Coroutine[Any, Any, None]]


def run(scenario: Scenario, seed: int = 1, plan: Plan = QUIET) -> None:
    """Run a scenario. A traceback in the log of a broker is a violation."""
    world = Neighbours(seed, plan)
    loop, hosts = world.simulator.loop, world.brokers.hosts

    async def live() -> None:
        await world.start()
        await scenario(world)

    def on_step() -> None:
        for host in hosts:
            host.on_step()

    seed_sqlite(seed)
    with LoggedErrors(world.findings):
        loop.on_step = on_step
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(asyncio.wait_for(live(), LONG_S))
        finally:
            for host in hosts:
                host.kill()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            asyncio.set_event_loop(None)
            loop.close()
    assert world.findings.violations == []


def watch_of(host: BrokerHost) -> PeerWatch:
    assert host.server is not None
    return host.server._control.peers


def cluster_of(host: BrokerHost) -> str | None:
    assert host.server is not None
    return host.server.broker.metadata.image.cluster_id


async def becomes(host: BrokerHost, reach: Reach) -> None:
    """Wait until `host` has found its peer to be so."""
    await until(lambda: watch_of(host).counts()[reach] == 1, SOON_S)


async def describe(world: Neighbours, timeout_s: float = PATIENCE_S) -> DescribeClusterResponse:
    """Return the response of the second broker to the first."""
    (peer,) = watch_of(world.first).peers
    request = peer.request(DescribeClusterRequest(), timeout_s=timeout_s)
    response = await world.inside(world.first, request)
    assert isinstance(response, DescribeClusterResponse)
    return response


async def failure_of(world: Neighbours, timeout_s: float = PATIENCE_S) -> PeerError:
    with pytest.raises(PeerError) as caught:
        await describe(world, timeout_s)
    return caught.value


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_broker_calls_another_one(seed: int) -> None:
    async def scenario(world: Neighbours) -> None:
        await becomes(world.first, Reach.CONNECTED)
        await becomes(world.second, Reach.CONNECTED)
        world.network.delay_s, world.network.partial_chance = (0.0, 0.1), 0.8
        calls = [describe(world) for _ in range(20)]
        for response in await asyncio.gather(*calls):
            assert response.cluster_id == cluster_of(world.first)

    run(scenario, seed)


@pytest.mark.parametrize("power", [False, True])
def test_a_killed_broker_is_called_again_when_it_is_back(power: bool) -> None:
    async def scenario(world: Neighbours) -> None:
        await becomes(world.first, Reach.CONNECTED)
        world.second.kill(power=power)
        await becomes(world.first, Reach.UNREACHABLE)
        error = await failure_of(world)
        assert isinstance(error, PeerUnreachableError)
        assert not error.is_outcome_unknown
        assert await world.second.start()
        await becomes(world.first, Reach.CONNECTED)

    run(scenario)


def test_a_request_under_way_when_the_broker_dies_has_an_unknown_outcome() -> None:
    async def scenario(world: Neighbours) -> None:
        await describe(world)
        world.network.delay_s = (0.5, 0.6)
        call = asyncio.ensure_future(describe(world))
        await asyncio.sleep(0.1)
        world.second.kill()
        with pytest.raises(PeerDisconnectedError) as caught:
            await call
        assert caught.value.is_outcome_unknown

    run(scenario)


@pytest.mark.parametrize("source", [1, 2])
def test_a_cut_in_one_direction_is_noticed_and_its_end_too(source: int) -> None:
    async def scenario(world: Neighbours) -> None:
        await becomes(world.first, Reach.CONNECTED)
        await describe(world)
        world.network.cut(f"broker-{source}", f"broker-{3 - source}")
        error = await failure_of(world, 1.0)
        assert isinstance(error, PeerTimedOutError)
        assert error.is_outcome_unknown
        error = await failure_of(world, 1.0)
        assert isinstance(error, PeerUnreachableError), "there is no new connection"
        await becomes(world.first, Reach.UNREACHABLE)
        world.network.heal()
        await becomes(world.first, Reach.CONNECTED)

    run(scenario)


def test_a_broker_that_is_down_is_called_about_once_a_second_by_each_caller() -> None:
    """The regular calls have connections of their own."""

    async def scenario(world: Neighbours) -> None:
        await becomes(world.first, Reach.CONNECTED)
        world.second.kill()
        await becomes(world.first, Reach.UNREACHABLE)
        attempts: list[float] = []
        connect = world.network.connect

        async def counted(process: Process, address: Address) -> SimulatedSocket:
            attempts.append(world.simulator.loop.time())
            return await connect(process, address)

        world.network.connect = counted  # type: ignore[method-assign]
        end = world.simulator.loop.time() + 60.0
        while world.simulator.loop.time() < end:  # a caller without a pause of its own
            assert isinstance(await failure_of(world), PeerUnreachableError)
        assert 2 * 45 <= len(attempts) <= 2 * 90
        pauses = [after - before for before, after in itertools.pairwise(attempts)]
        assert len({round(pause, 3) for pause in pauses}) > 10, "with jitter"

    run(scenario)


def test_a_broker_of_another_cluster_gets_no_request() -> None:
    async def scenario(world: Neighbours) -> None:
        await becomes(world.first, Reach.CONNECTED)
        await world.give_away(world.second)
        await becomes(world.first, Reach.REFUSED)
        assert cluster_of(world.second) != cluster_of(world.first)
        assert world.second.server is not None
        requests = world.second.server.broker.requests
        requests.fold()
        asked = [api for api, _ in requests.seen()]
        assert asked == ["ApiVersions"]

    run(scenario)


def test_stopping_ends_the_connections_to_other_brokers() -> None:
    async def scenario(world: Neighbours) -> None:
        await becomes(world.first, Reach.CONNECTED)
        await becomes(world.second, Reach.CONNECTED)
        process = world.second.process
        assert process is not None
        assert len(process.sockets) >= 2, "each broker calls the other"
        await world.first.stop()
        await becomes(world.second, Reach.UNREACHABLE)
        assert process is world.second.process
        assert process.sockets == []

    run(scenario)


@pytest.mark.parametrize("seed", range(1, 4))
def test_brokers_find_each_other_again_after_faults_of_all_kinds(seed: int) -> None:
    faults = frozenset({"kill", "power", "reset", "slow network", "clock"})

    async def scenario(world: Neighbours) -> None:
        for times in (1, 2):
            await world.suffer()
            for host in world.brokers.hosts:
                await becomes(host, Reach.CONNECTED)
            # The nemesis kills a broker each time, whatever else it draws.
            assert world.brokers.starts >= 2 + times

    run(scenario, seed, Plan(15.0, frozenset(), faults))
