"""Online migration between the protocols, and groups with members of both (KIP-848)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumer_members import (
    GROUP,
    Consumer,
    assigned,
    assignment,
    describe,
    group_of,
    settle,
    snapshot,
    subscription,
)
from coordinator_members import heartbeat, join, leave, new_id, sync
from coordinator_world import World, in_world, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig, MigrationPolicy
from lakelog.coordinator.group.refusal import JoinRefusal
from lakelog.coordinator.group.timers import TimerKey, TimerKind
from lakelog.protocol.consumer_protocol import version_of
from lakelog.protocol.describe_groups import DescribeGroupsRequest
from lakelog.protocol.list_groups import ListGroupsRequest

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@dataclass
class Classic:
    """A client process of the classic protocol, with eager or cooperative rebalances."""

    world: World
    member_id: str = ""
    instance_id: str | None = None
    cooperative: bool = False
    owned: dict[str, list[int]] = field(default_factory=dict)
    joined: Any = None

    def ask_to_join(self) -> Any:
        owned = self.owned if self.cooperative else {}
        data = subscription(["orders"], owned)
        return join(
            self.world,
            self.member_id,
            instance_id=self.instance_id,
            protocols=(("range", data),),
            session_timeout_ms=20_000,
            rebalance_timeout_ms=12_000,
        )

    async def join(self) -> int:
        """Join, and store the assignment."""
        response = await self.ask_to_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = await self.ask_to_join()
        code: int = response.error_code
        if not code:
            self.joined, self.member_id = response, response.member_id
            return await self.sync()
        return code

    async def sync(self, shares: dict[str, bytes] | None = None) -> int:
        response = await sync(self.world, self.joined, shares, instance_id=self.instance_id)
        if not response.error_code:
            self.owned = assigned(response.assignment)
        code: int = response.error_code
        return code

    async def beat(self) -> int:
        """Send a heartbeat; rejoin on REBALANCE_IN_PROGRESS."""
        code = await heartbeat(self.world, self.joined, instance_id=self.instance_id)
        return await self.join() if code == ErrorCode.REBALANCE_IN_PROGRESS else code


def classic_of(world: World) -> ClassicGroup:
    return world.coordinator._host.shard(0).state.classic[GROUP]


async def classic_group(world: World, *members: Classic) -> None:
    """Return a stable classic group; the first member leads and assigns `orders`."""
    for member in members:
        if member.instance_id is None:
            member.member_id = await new_id(world)
    replies = [member.ask_to_join() for member in members]
    if len(members) > 1:
        first = await replies[0]
        members[0].member_id = first.member_id
        replies[0] = members[0].ask_to_join()
    for member, reply in zip(members, replies, strict=True):
        member.joined = await reply
        member.member_id = member.joined.member_id
    ids = sorted(member.member_id for member in members)
    shares = {
        each: assignment({"orders": list(range(n, 8, len(ids)))}) for n, each in enumerate(ids)
    }
    leader = next(m for m in members if m.joined.leader == m.member_id)
    waiting = [asyncio.ensure_future(m.sync()) for m in members if m is not leader]
    assert await leader.sync(shares) == 0
    for task in waiting:
        assert await task == 0


async def converge(*members: Any, rounds: int = 10) -> None:
    for _ in range(rounds):
        for member in members:
            answer = await member.beat()
            assert answer == 0 or getattr(answer, "error_code", 1) == 0, answer


def partitions(*members: Any) -> list[int]:
    """Return the partitions of these members, each as often as it is owned."""
    found: list[int] = []
    for member in members:
        found += member.of() if isinstance(member, Consumer) else member.owned.get("orders", [])
    return sorted(found)


# Upgrades


@in_world(consumer=AT_ONCE)
async def test_a_consumer_that_joins_a_classic_group_upgrades_it(world: World) -> None:
    old = [Classic(world), Classic(world)]
    await classic_group(world, *old)
    generation = old[0].joined.generation_id
    new = Consumer(world, "new")
    response = await new.beat()
    assert (response.error_code, response.member_epoch) == (0, generation + 1)
    group = group_of(world)
    assert {each.member_epoch for each in group.classic_members()} == {generation}
    assert partitions(*old) == list(range(8)), "they keep their partitions until they rejoin"
    assert world.coordinator._host.shard(0).state.stored == {}
    await converge(*old, new)
    assert partitions(*old, new) == list(range(8))
    assert sorted(map(len, (partitions(each) for each in (*old, new)))) == [2, 3, 3]
    described = await describe(world)
    assert [each.member_type for each in described.members] == [0, 0, 1]
    assert described.group_state == "Stable"


@in_world(consumer=AT_ONCE)
async def test_cooperative_members_keep_partitions_of_their_target(world: World) -> None:
    old = Classic(world, cooperative=True)
    await classic_group(world, old)
    new = Consumer(world, "new")
    await new.beat()
    had = set(partitions(old))
    assert await old.beat() == 0
    assert len(partitions(old)) == 4
    assert set(partitions(old)) < had
    await new.beat()
    assert new.of() == set(), "the member has yet to join without the other half"
    await converge(old, new)
    assert partitions(old, new) == list(range(8))


@in_world(consumer=AT_ONCE)
async def test_members_that_wait_for_a_rebalance_are_sent_to_join_again(world: World) -> None:
    old = [Classic(world), Classic(world)]
    await classic_group(world, *old)
    waiting = old[0].ask_to_join()
    assert not waiting.done()
    await Consumer(world, "new").beat()
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert await old[0].join() == 0


@in_world(consumer=AT_ONCE)
async def test_a_replaced_classic_member_leaves_no_timer(world: World) -> None:
    old = Classic(world, instance_id="a")
    await classic_group(world, old)
    await Consumer(world, "new", instance_id="a").beat()
    assert list(group_of(world).members) == ["new"]
    deadlines = world.coordinator._host.shard(0).state.deadlines
    assert TimerKey(TimerKind.SESSION, GROUP, old.member_id) not in deadlines


@in_world(consumer=AT_ONCE)
async def test_an_assignment_on_its_way_to_the_log_is_waited_for(world: World) -> None:
    old = Classic(world, member_id=await new_id(world))
    old.joined = await old.ask_to_join()
    world.log.delay_s = lambda: 1.0
    given = {old.member_id: assignment({"orders": [0, 1, 2]})}
    syncing = asyncio.ensure_future(old.sync(given))
    await asyncio.sleep(0)
    new = Consumer(world, "new")
    await new.beat()
    assert await syncing == 0
    member = group_of(world).members[old.member_id]
    assert {p for _, p in member.held()} == {0, 1, 2}


@pytest.mark.parametrize(
    ("policy", "protocol_type", "code"),
    [
        (MigrationPolicy.DISABLED, "consumer", ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.DOWNGRADE, "consumer", ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.UPGRADE, "connect", ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.UPGRADE, "consumer", ErrorCode.NONE),
    ],
)
def test_which_groups_may_go_up(policy: MigrationPolicy, protocol_type: str, code: int) -> None:
    async def scenario(world: World) -> None:
        protocols = (("range", subscription(["x"])),)
        options: dict[str, Any] = {"protocol_type": protocol_type, "protocols": protocols}
        member_id = await new_id(world, **options)
        joined = await join(world, member_id, **options)
        await sync(world, joined, {member_id: assignment({})})
        assert (await Consumer(world, "new").ask()).error_code == code

    consumer = ConsumerConfig(assignment_interval_ms=0, migration=policy)
    run(scenario, GroupConfig(partitions=1, initial_rebalance_delay_ms=0, consumer=consumer))


@in_world(consumer=AT_ONCE)
async def test_a_malformed_subscription_prevents_an_upgrade(world: World) -> None:
    member_id = await new_id(world)
    joined = await join(world, member_id, protocols=(("range", b""),))
    await sync(world, joined, {member_id: b""})
    response = await Consumer(world, "new").ask()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in response.error_message
    assert await heartbeat(world, joined) == 0


@in_world(consumer=AT_ONCE)
async def test_an_empty_classic_group_gives_way(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    await leave(world, (old.member_id, None))
    assert (await Consumer(world, "new").beat()).member_epoch == 1
    assert world.coordinator._host.shard(0).state.classic == {}


# Downgrades


@in_world(consumer=AT_ONCE)
async def test_when_the_last_consumer_leaves_the_group_goes_back(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    new = Consumer(world, "new")
    await new.beat()
    await converge(old, new)
    epoch = group_of(world).epoch
    assert (await new.leave()).error_code == 0
    group = classic_of(world)
    assert (group.state, group.generation, list(group.members)) == (
        "PreparingRebalance",
        epoch,
        [old.member_id],
    )
    assert snapshot(world) == {}
    joined = await old.ask_to_join()
    assert joined.generation_id == epoch + 1
    old.joined = joined
    assert await old.sync({old.member_id: assignment({"orders": list(range(8))})}) == 0
    assert await old.beat() == 0
    await world.restart()
    assert await old.beat() == 0, "it survives a restart as a classic group"


@in_world(consumer=AT_ONCE)
async def test_when_the_last_consumer_falls_silent_too(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    new = Consumer(world, "new")
    await new.beat()
    await converge(old, new)
    for _ in range(12):
        await asyncio.sleep(4)
        if GROUP in world.coordinator._host.shard(0).state.classic:
            break
        assert await old.beat() == 0
    assert list(classic_of(world).members) == [old.member_id]


@in_world(consumer=ConsumerConfig(assignment_interval_ms=0, migration=MigrationPolicy.UPGRADE))
async def test_a_group_that_may_not_go_back_stays_and_shares_out_again(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    new = Consumer(world, "new")
    await new.beat()
    await converge(old, new)
    await new.leave()
    await converge(old)
    assert partitions(old) == list(range(8))
    assert [each.classic is not None for each in group_of(world).members.values()] == [True]


@in_world(consumer=AT_ONCE)
async def test_a_static_consumer_that_returns_as_a_classic_one_downgrades_the_group(
    world: World,
) -> None:
    consumer = Consumer(world, "new", instance_id="a")
    await consumer.beat()
    await consumer.leave(-2)
    classic = Classic(world, instance_id="a")
    assert await classic.join() == 0
    assert list(classic_of(world).static_members) == ["a"]
    assert partitions(classic) == list(range(8))
    assert await classic.beat() == 0


@in_world(consumer=AT_ONCE)
async def test_an_empty_consumer_group_gives_way(world: World) -> None:
    new = Consumer(world, "new")
    await new.beat()
    await new.leave()
    old = Classic(world)
    old.member_id = await new_id(world)
    old.joined = await old.ask_to_join()
    assert old.joined.error_code == 0
    assert snapshot(world) == {}


# Classic members of a consumer group


@pytest.mark.parametrize(("version", "of_assignment"), [(0, 0), (2, 2), (3, 3), (9, 3)])
def test_an_assignment_has_the_version_of_its_subscription(
    version: int, of_assignment: int
) -> None:
    """At most the newest version of an assignment, since newer ones only add fields."""

    async def scenario(world: World) -> None:
        await Consumer(world, "new").beat()
        data = version.to_bytes(2) + subscription(["orders"], version=min(version, 3))[2:]
        protocols = (("range", data),)
        member_id = await new_id(world, protocols=protocols)
        joined = await join(world, member_id, protocols=protocols)
        response = await sync(world, joined)
        assert version_of(response.assignment) == of_assignment

    run(scenario, GroupConfig(partitions=1, consumer=AT_ONCE))


@in_world(consumer=AT_ONCE)
async def test_a_classic_member_may_join_a_consumer_group(world: World) -> None:
    new = Consumer(world, "new")
    await new.beat()
    old = Classic(world)
    assert await old.join() == 0
    assert old.owned == {}, "nothing is free yet"
    assert (old.joined.protocol_name, old.joined.members) == ("range", [])
    await converge(new, old)
    assert partitions(old, new) == list(range(8))
    assert await heartbeat(world, old.joined) == 0


@in_world(consumer=AT_ONCE)
async def test_refusals_to_a_classic_member(world: World) -> None:
    told: list[JoinRefusal] = []
    world.coordinator._join_refused = told.append
    await Consumer(world, "new").beat()
    old = Classic(world)
    await old.join()
    stranger = join(world, "", version=3, protocol_type="connect", protocols=(("range", b""),))
    assert (await stranger).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = join(world, "", version=3, protocols=(("sticky", subscription(["orders"])),))
    assert (await other).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    broken = join(world, "", version=3, protocols=(("range", b"\x00"),))
    assert (await broken).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert [refusal.code for refusal in told] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 3
    assert "assignor in common" in told[0].reason
    assert "cannot be decoded" in told[2].reason
    wrong = await sync(world, old.joined, protocol_name="sticky")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stale = await sync(world, old.joined, generation_id=77)
    assert stale.error_code == ErrorCode.ILLEGAL_GENERATION
    old.joined.member_id = "new"
    assert await heartbeat(world, old.joined) == ErrorCode.UNKNOWN_MEMBER_ID
    old.joined.member_id = "nobody"
    assert await heartbeat(world, old.joined) == ErrorCode.UNKNOWN_MEMBER_ID


@in_world(consumer=ConsumerConfig(assignment_interval_ms=0, migration=MigrationPolicy.DISABLED))
async def test_without_migration_no_classic_member_may_join(world: World) -> None:
    await Consumer(world, "new").beat()
    assert await Classic(world).join() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_world(consumer=AT_ONCE)
async def test_a_classic_member_that_does_not_join_again_is_dropped(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    new = Consumer(world, "new")
    await new.beat()
    for _ in range(3):
        assert await heartbeat(world, old.joined) == ErrorCode.REBALANCE_IN_PROGRESS
        await new.beat()
        await asyncio.sleep(5)
    assert await heartbeat(world, old.joined) == ErrorCode.UNKNOWN_MEMBER_ID
    await settle(new)
    assert new.of() == set(range(8))


@in_world(consumer=AT_ONCE)
async def test_a_classic_member_that_does_not_ask_for_its_assignment_is_dropped(
    world: World,
) -> None:
    new = Consumer(world, "new")
    await new.beat()
    member_id = (await join(world, "", protocols=(("range", subscription(["orders"])),))).member_id
    options: Any = {"rebalance_timeout_ms": 5_000}
    await join(world, member_id, protocols=(("range", subscription(["orders"])),), **options)
    await asyncio.sleep(6)
    assert list(group_of(world).members) == ["new"]


@in_world(consumer=AT_ONCE)
async def test_leave_group_removes_members_of_either_protocol(world: World) -> None:
    new = Consumer(world, "new", instance_id="a")
    other = Consumer(world, "other")
    await settle(new, other)
    old = Classic(world)
    await old.join()
    response = await leave(world, ("", "a"), (old.member_id, None), ("nobody", None), ("", "z"))
    assert [each.error_code for each in response.members] == [0, 0, 25, 25]
    assert list(group_of(world).members) == ["other"]


@in_world(consumer=AT_ONCE)
async def test_a_mixed_group_survives_a_restart(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    new = Consumer(world, "new")
    await new.beat()
    before = snapshot(world)
    await world.restart()
    assert snapshot(world) == before
    await converge(old, new)
    assert partitions(old, new) == list(range(8))


@in_world(consumer=AT_ONCE)
async def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(world: World) -> None:
    old = Classic(world)
    await classic_group(world, old)
    world.log.fate = lambda: "refused"
    response = await Consumer(world, "new").ask()
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.fate = lambda: "ok"
    assert await old.beat() == 0
    assert snapshot(world) == {}


# Descriptions


@in_world(consumer=AT_ONCE)
async def test_both_kinds_are_listed_with_their_type(world: World) -> None:
    await Consumer(world, "new", group="modern").beat()
    await classic_group(world, Classic(world))

    async def listed(**filters: Any) -> set[tuple[str, str, str]]:
        response = await world.coordinator.admin.list_groups(ListGroupsRequest(**filters))
        return {(g.group_id, g.group_type, g.group_state) for g in response.groups}

    modern, old = ("modern", "consumer", "Stable"), (GROUP, "classic", "Stable")
    assert await listed() == {modern, old}
    assert await listed(types_filter=["Consumer"]) == {modern}
    assert await listed(types_filter=["classic"]) == {old}
    assert await listed(states_filter=["stable"], types_filter=["share"]) == set()
    request = DescribeGroupsRequest(groups=["modern"])
    for version, code in ((5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        response = await world.coordinator.admin.describe_groups(request, version)
        (described,) = response.groups
        assert (described.group_state, described.error_code) == ("Dead", code)
    assert described.error_message == "Group modern is not a classic group."
    assert (await describe(world, GROUP)).error_message == "Group readers is not a consumer group."
    assert (await describe(world, "none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await describe(world, "")).error_code == ErrorCode.INVALID_GROUP_ID
