from __future__ import annotations

import pytest

from lakelog.base.memory_budget import Account, Share
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.groups import ClassicGroups
from lakelog.coordinator.group.classic.member import Member
from lakelog.coordinator.group.records.classic import GroupMetadataValue
from lakelog.coordinator.shared_count import ShardCount, SharedCount


class Groups:
    """The classic groups of one loaded shard, with their totals."""

    def __init__(self) -> None:
        self.memory, self.count = Share(), SharedCount()
        count = ShardCount(self.count)
        count.open()
        self.groups = ClassicGroups(Account(self.memory), count)

    def add(self, name: str) -> ClassicGroup:
        group = self.groups[name] = ClassicGroup(name)
        return group


def _member(name: str) -> Member:
    return Member(name, None, "client", "/host", 1, 1, (("range", b"topics"),))


@pytest.mark.parametrize("way", ["pop", "del", "clear", "replace"])
def test_a_group_that_leaves_releases_its_memory(way: str) -> None:
    world = Groups()
    world.add("kept")
    group = world.add("g")
    before = world.memory.used
    group.add(_member("m"))
    assert world.memory.used == before + group.members["m"].memory
    if way == "pop":
        world.groups.pop("g")
    elif way == "del":
        del world.groups["g"]
    elif way == "clear":
        world.groups.clear()
    else:
        world.add("g")
    left = {"clear": 0, "replace": 2}.get(way, 1)
    assert (world.count.total, world.memory.used) == (left, left * before // 2)
    group.remove("m")  # of a group that has left
    assert world.memory.used == left * before // 2


def test_a_group_is_forgotten_when_nothing_refers_to_it() -> None:
    world = Groups()
    group = world.add("g")
    group.pending_joins.add("id")
    world.groups.forget_if_unused(group)
    assert "g" in world.groups
    group.pending_joins.clear()
    world.groups.forget_if_unused(group)
    assert world.groups == {}
    assert world.memory.used == world.count.total == 0


@pytest.mark.parametrize("reason", ["member", "generation", "stored"])
def test_a_group_in_use_is_not_forgotten(reason: str) -> None:
    world = Groups()
    group = world.add("g")
    if reason == "member":
        group.add(_member("m"))
    elif reason == "generation":
        group.generation = 1
    else:
        world.groups.replay("g", GroupMetadataValue(generation=0))
    world.groups.forget_if_unused(group)
    assert "g" in world.groups


def test_a_tombstone_releases_the_stored_generation() -> None:
    world = Groups()
    world.groups.replay("g", GroupMetadataValue(generation=1))
    first = world.memory.used
    world.groups.replay("g", GroupMetadataValue(generation=2))
    assert world.memory.used == first > 0
    world.groups.replay("g", None)
    assert world.groups.stored == {}
    assert world.memory.used == 0
