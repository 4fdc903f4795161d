"""Groups that settle, and groups that never do."""

from __future__ import annotations

import pytest

from simulator import World
from simulator.checkers.laws import Law
from simulator.clients.groups.consumer_member import ConsumerMember
from simulator.clients.groups.settling import settle

PLACES = [("tasks", 0), ("tasks", 1)]


@pytest.mark.parametrize(
    ("owned", "settles"),
    [
        (([0], [1]), True),
        (([], [0, 1]), True),
        (([0], []), False),
        (([0], [0, 1]), False),
    ],
)
@pytest.mark.parametrize("has_dead_member", [False, True])
def test_each_partition_has_one_owner(
    owned: tuple[list[int], list[int]], settles: bool, has_dead_member: bool
) -> None:
    world = World(1)
    loop = world.simulator.loop
    members = [ConsumerMember(world.context, f"m{number}", "team", PLACES) for number in range(3)]
    for member, indexes in zip(members, owned, strict=False):
        member.owned = frozenset(("tasks", index) for index in indexes)
    dead = [members.pop()] if has_dead_member else []
    loop.run_until_complete(settle(members, dead, loop, world.findings))
    law = Law.EXPIRES if has_dead_member else Law.OWNED
    assert world.findings.broken == (set() if settles else {law})
    assert (loop.time() < 1) is settles
    loop.close()
