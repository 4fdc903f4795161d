"""Sessions of simulated processes with the ensemble, over a network that is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lakelog.metadata.store.zookeeper.session import Create, Disconnected, OutcomeUnknown, Put
from simulator.checkers.findings import Findings
from simulator.cluster.ensemble import STORE, NetworkedSession, ensemble_of
from simulator.engine.process import Process
from simulator.engine.simulator import Simulator
from simulator.network.network import Network

TIMEOUT_S = 3.0
HERE = "broker-1"


class Setup:
    """An ensemble, and a process with a session."""

    def __init__(self) -> None:
        self.simulator = Simulator(1)
        loop = self.simulator.loop
        stream = self.simulator.random_stream("network")
        self.network = Network(loop, stream, self.simulator.trace, self.simulator.faults)
        self.ensemble = ensemble_of(self.simulator, Findings())
        self.process = Process(HERE)
        self.session = self.new_session(self.process)
        self.connections = 0

    def new_session(self, process: Process) -> NetworkedSession:
        rng = self.simulator.random_stream("session")
        return NetworkedSession(self.ensemble, self.network, process, rng, TIMEOUT_S)

    async def open(self) -> None:
        await self.session.open(self._on_connection)
        await self.session.write(Create("/mine", b"", ephemeral=True))

    def _on_connection(self) -> None:
        self.connections += 1

    async def lives(self) -> bool:
        """Return whether another session sees the ephemeral node."""
        other = self.new_session(Process("watcher"))
        await other.open(lambda: None)
        await other.write(Create(f"/barrier{self.ensemble.committed}"))
        found = await other.get("/mine")
        await other.close()
        return found is not None


def run(scenario: Callable[[Setup], Coroutine[Any, Any, None]]) -> None:
    setup = Setup()
    loop = setup.simulator.loop

    async def main() -> None:
        await setup.open()
        await scenario(setup)

    try:
        loop.run_until_complete(asyncio.wait_for(main(), 300))
    finally:
        loop.close()


@pytest.mark.parametrize("how", ["kill", "pause", "cut"])
def test_a_session_ends_when_the_ensemble_hears_nothing(how: str) -> None:
    async def scenario(setup: Setup) -> None:
        if how == "kill":
            setup.process.kill()
        elif how == "pause":
            setup.process.pause(setup.simulator.loop.time())
        else:
            setup.network.cut(HERE, STORE)
        await asyncio.sleep(TIMEOUT_S / 2)
        assert await setup.lives()
        await asyncio.sleep(TIMEOUT_S)
        assert not await setup.lives()

    run(scenario)


def test_a_short_cut_costs_the_connection_and_keeps_the_session() -> None:
    async def scenario(setup: Setup) -> None:
        before, session_id = setup.connections, setup.session.session_id
        setup.network.cut(STORE, HERE)
        await asyncio.sleep(TIMEOUT_S * 0.8)
        setup.network.heal()
        await asyncio.sleep(TIMEOUT_S)
        assert setup.connections == before + 2
        assert setup.session.session_id == session_id
        assert await setup.lives()

    run(scenario)


def test_an_expired_session_is_replaced() -> None:
    async def scenario(setup: Setup) -> None:
        session_id = setup.session.session_id
        setup.network.cut(HERE, STORE)
        await asyncio.sleep(2 * TIMEOUT_S)
        setup.network.heal()
        await asyncio.sleep(TIMEOUT_S)
        assert setup.session.session_id != session_id
        assert await setup.session.get("/mine") is None

    run(scenario)


def test_a_write_without_a_response_is_carried_out() -> None:
    async def scenario(setup: Setup) -> None:
        await setup.session.write(Create("/value", b"old"))
        setup.network.cut(STORE, HERE)
        with pytest.raises(OutcomeUnknown):
            await setup.session.write(Put("/value", b"new"))
        setup.network.heal()
        await asyncio.sleep(TIMEOUT_S)
        node = await setup.session.get("/value")
        assert node is not None
        assert node.data == b"new"

    run(scenario)


def test_a_request_that_does_not_arrive_is_not_carried_out() -> None:
    async def scenario(setup: Setup) -> None:
        await setup.session.write(Create("/value", b"old"))
        setup.network.cut(HERE, STORE)
        with pytest.raises(OutcomeUnknown):
            await setup.session.write(Put("/value", b"new"))
        with pytest.raises(Disconnected):
            await setup.session.get("/value")
        setup.network.heal()
        await asyncio.sleep(TIMEOUT_S)
        node = await setup.session.get("/value")
        assert node is not None
        assert node.data == b"old"

    run(scenario)
