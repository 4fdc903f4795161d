"""One broker of a world: the state after a kill, a power failure or a stop, and failed starts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from simulator import Plan, World
from simulator.brokers.host import DATA, BrokerHost
from simulator.checkers.laws import Law

FILE, ANOTHER = DATA / "unsynced", DATA / "another"


def with_host(scenario: Callable[[BrokerHost], Coroutine[Any, Any, None]]) -> World:
    """Run a scenario with a broker that has been started and has no clients."""
    world = World(1, Plan(faults=frozenset({"disk error"})))
    host = world.brokers.hosts[0]

    async def main() -> None:
        assert await host.start()
        await scenario(host)
        host.kill()

    world.simulator.loop.run_until_complete(asyncio.wait_for(main(), 300))
    world.simulator.loop.close()
    return world


def write(host: BrokerHost, path: Path) -> None:
    host.disk.open(path, create=True).write_at(0, b"unsynced")


def test_a_kill_keeps_the_page_cache_and_a_power_failure_does_not() -> None:
    async def scenario(host: BrokerHost) -> None:
        write(host, FILE)
        host.kill()
        assert host.disk.read(FILE) == b"unsynced"
        assert await host.start()
        write(host, ANOTHER)
        host.kill(power=True)
        assert not host.disk.exists(ANOTHER)

    with_host(scenario)


def test_a_broker_dies_at_the_chosen_operation_on_disk() -> None:
    async def scenario(host: BrokerHost) -> None:
        host.disk.stop_at = host.disk.steps
        asyncio.get_running_loop().call_soon(host.on_step)
        await host.wait_for_death(1.0)
        assert not host.is_running

    with_host(scenario)


def test_a_clean_stop_loses_nothing_with_the_power() -> None:
    async def scenario(host: BrokerHost) -> None:
        await host.stop()
        before = sorted(host.disk.files())
        host.disk.crash()
        assert sorted(host.disk.files()) == before

    with_host(scenario)


def test_failed_starts_are_repeated() -> None:
    async def scenario(host: BrokerHost) -> None:
        await host.stop()
        host.disk.fail("read", errno.EIO, times=1)
        before = host.starts
        await host.bring_back()
        assert host.is_running
        assert host.starts > before + 1

    assert with_host(scenario).findings.violations == []


def test_a_broker_that_never_starts_is_a_violation() -> None:
    async def scenario(host: BrokerHost) -> None:
        await host.stop()
        host.disk.fail("read", errno.EIO, times=10_000)
        await host.bring_back()

    assert with_host(scenario).findings.broken == {Law.STARTS}


def test_a_host_runs_one_process() -> None:
    async def scenario(host: BrokerHost) -> None:
        with pytest.raises(AssertionError, match="already"):
            await host.start()

    with_host(scenario)
