"""Crashes of clients: replacements, and members of groups that stay away."""

from __future__ import annotations

import asyncio
from collections import Counter

from simulator import World
from simulator.clients.client import Client
from simulator.clients.groups.consumer_member import ConsumerMember
from simulator.clients.groups.member import Role


class Sleeper(Client):
    async def run(self) -> None:
        await asyncio.sleep(3600)

    def replaced(self) -> Sleeper:
        return Sleeper(self.context, self.next_name)


class SleepingMember(ConsumerMember):
    async def run(self) -> None:
        await asyncio.sleep(3600)

    def replaced(self) -> SleepingMember:
        return SleepingMember(
            self.context, self.next_name, self.group, self.topic_partitions, self.role
        )


def crash_often(world: World, number: int = 0, times: int = 20) -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        for _ in range(times):
            if number < len(world.pool.clients):
                world.pool.crash(number)
        world.pool.kill()

    world.simulator.loop.run_until_complete(main())
    world.simulator.loop.close()


def test_a_crashed_client_is_replaced_by_another_process() -> None:
    world = World(1)
    first = Sleeper(world.context, "once0")
    world.pool.start([first])
    crash_often(world, times=2)
    (client,) = world.pool.clients
    assert client.name == "once0'2"
    assert not first.process.alive


def members(world: World, *roles: Role) -> None:
    world.pool.start(
        SleepingMember(world.context, f"m{number}", "team", [("tasks", 0)], role)
        for number, role in enumerate(roles)
    )


def test_a_dynamic_member_may_stay_away_and_the_last_one_never_does() -> None:
    world = World(1)
    members(world, Role(), Role(), Role())
    crash_often(world)
    assert len(world.pool.clients) == 1
    assert len(world.pool.dead_members) == 2


def test_a_static_member_comes_back() -> None:
    world = World(1)
    members(world, Role("one"), Role("two"))
    crash_often(world)
    assert Counter(member.instance for member in world.pool.members) == Counter(["one", "two"])
    assert world.pool.dead_members == []
