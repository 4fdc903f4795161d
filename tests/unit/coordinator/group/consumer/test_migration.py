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
from group_setup import Setup, in_virtual_time, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.change_queue import TimerKey, TimerKind
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.coordinator.group.classic.member import JoinRefusal
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig, MigrationPolicy
from lakelog.protocol.consumer_protocol import version_of
from lakelog.protocol.groups import DescribeGroupsRequest, ListGroupsRequest

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@dataclass
class Classic:
    """A client process of the classic protocol, with eager or cooperative rebalances."""

    setup: Setup
    member_id: str = ""
    instance_id: str | None = None
    cooperative: bool = False
    owned: dict[str, list[int]] = field(default_factory=dict)
    joined: Any = None

    def ask_to_join(self) -> Any:
        owned = self.owned if self.cooperative else {}
        data = subscription(["orders"], owned)
        return join(
            self.setup,
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
        response = await sync(self.setup, self.joined, shares, instance_id=self.instance_id)
        if not response.error_code:
            self.owned = assigned(response.assignment)
        code: int = response.error_code
        return code

    async def beat(self) -> int:
        """Send a heartbeat; rejoin on REBALANCE_IN_PROGRESS."""
        code = await heartbeat(self.setup, self.joined, instance_id=self.instance_id)
        return await self.join() if code == ErrorCode.REBALANCE_IN_PROGRESS else code


def classic_of(setup: Setup) -> ClassicGroup:
    return setup.coordinator._host.shard(0).state.classic[GROUP]


async def classic_group(setup: Setup, *members: Classic) -> None:
    """Return a stable classic group; the first member leads and assigns `orders`."""
    for member in members:
        if member.instance_id is None:
            member.member_id = await new_id(setup)
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


@in_virtual_time(consumer=AT_ONCE)
async def test_a_consumer_that_joins_a_classic_group_upgrades_it(setup: Setup) -> None:
    old = [Classic(setup), Classic(setup)]
    await classic_group(setup, *old)
    generation = old[0].joined.generation_id
    new = Consumer(setup, "new")
    response = await new.beat()
    assert (response.error_code, response.member_epoch) == (0, generation + 1)
    group = group_of(setup)
    assert {each.member_epoch for each in group.classic_members()} == {generation}
    assert partitions(*old) == list(range(8)), "they keep their partitions until they rejoin"
    assert setup.coordinator._host.shard(0).state.classic.stored == {}
    await converge(*old, new)
    assert partitions(*old, new) == list(range(8))
    assert sorted(map(len, (partitions(each) for each in (*old, new)))) == [2, 3, 3]
    described = await describe(setup)
    assert [each.member_type for each in described.members] == [0, 0, 1]
    assert described.group_state == "Stable"


@in_virtual_time(consumer=AT_ONCE)
async def test_cooperative_members_keep_partitions_of_their_target(setup: Setup) -> None:
    old = Classic(setup, cooperative=True)
    await classic_group(setup, old)
    new = Consumer(setup, "new")
    await new.beat()
    had = set(partitions(old))
    assert await old.beat() == 0
    assert len(partitions(old)) == 4
    assert set(partitions(old)) < had
    await new.beat()
    assert new.of() == set(), "the member has yet to join without the other half"
    await converge(old, new)
    assert partitions(old, new) == list(range(8))


@in_virtual_time(consumer=AT_ONCE)
async def test_members_that_wait_for_a_rebalance_are_sent_to_join_again(setup: Setup) -> None:
    old = [Classic(setup), Classic(setup)]
    await classic_group(setup, *old)
    waiting = old[0].ask_to_join()
    assert not waiting.done()
    await Consumer(setup, "new").beat()
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert await old[0].join() == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_a_replaced_classic_member_leaves_no_timer(setup: Setup) -> None:
    old = Classic(setup, instance_id="a")
    await classic_group(setup, old)
    await Consumer(setup, "new", instance_id="a").beat()
    assert list(group_of(setup).members) == ["new"]
    deadlines = setup.coordinator._host.shard(0).state.deadlines
    assert TimerKey(TimerKind.SESSION, GROUP, old.member_id) not in deadlines.at


@in_virtual_time(consumer=AT_ONCE)
async def test_an_assignment_on_its_way_to_the_log_is_waited_for(setup: Setup) -> None:
    old = Classic(setup, member_id=await new_id(setup))
    old.joined = await old.ask_to_join()
    setup.log.delay_s = lambda: 1.0
    given = {old.member_id: assignment({"orders": [0, 1, 2]})}
    syncing = asyncio.ensure_future(old.sync(given))
    await asyncio.sleep(0)
    new = Consumer(setup, "new")
    await new.beat()
    assert await syncing == 0
    member = group_of(setup).members[old.member_id]
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
    async def scenario(setup: Setup) -> None:
        protocols = (("range", subscription(["x"])),)
        options: dict[str, Any] = {"protocol_type": protocol_type, "protocols": protocols}
        member_id = await new_id(setup, **options)
        joined = await join(setup, member_id, **options)
        await sync(setup, joined, {member_id: assignment({})})
        assert (await Consumer(setup, "new").ask()).error_code == code

    consumer = ConsumerConfig(assignment_interval_ms=0, migration=policy)
    run(scenario, GroupConfig(partitions=1, initial_rebalance_delay_ms=0, consumer=consumer))


@in_virtual_time(consumer=AT_ONCE)
async def test_a_malformed_subscription_prevents_an_upgrade(setup: Setup) -> None:
    member_id = await new_id(setup)
    joined = await join(setup, member_id, protocols=(("range", b""),))
    await sync(setup, joined, {member_id: b""})
    response = await Consumer(setup, "new").ask()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in response.error_message
    assert await heartbeat(setup, joined) == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_an_empty_classic_group_gives_way(setup: Setup) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    await leave(setup, (old.member_id, None))
    assert (await Consumer(setup, "new").beat()).member_epoch == 1
    assert setup.coordinator._host.shard(0).state.classic == {}


# Downgrades


@in_virtual_time(consumer=AT_ONCE)
async def test_when_the_last_consumer_leaves_the_group_goes_back(setup: Setup) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    new = Consumer(setup, "new")
    await new.beat()
    await converge(old, new)
    epoch = group_of(setup).epoch
    assert (await new.leave()).error_code == 0
    group = classic_of(setup)
    assert (group.state, group.generation, list(group.members)) == (
        "PreparingRebalance",
        epoch,
        [old.member_id],
    )
    assert snapshot(setup) == {}
    joined = await old.ask_to_join()
    assert joined.generation_id == epoch + 1
    old.joined = joined
    assert await old.sync({old.member_id: assignment({"orders": list(range(8))})}) == 0
    assert await old.beat() == 0
    await setup.restart()
    assert await old.beat() == 0, "it survives a restart as a classic group"


@in_virtual_time(consumer=AT_ONCE)
async def test_when_the_last_consumer_falls_silent_too(setup: Setup) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    new = Consumer(setup, "new")
    await new.beat()
    await converge(old, new)
    for _ in range(12):
        await asyncio.sleep(4)
        if GROUP in setup.coordinator._host.shard(0).state.classic:
            break
        assert await old.beat() == 0
    assert list(classic_of(setup).members) == [old.member_id]


@in_virtual_time(
    consumer=ConsumerConfig(assignment_interval_ms=0, migration=MigrationPolicy.UPGRADE)
)
async def test_a_group_that_may_not_go_back_stays_and_shares_out_again(setup: Setup) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    new = Consumer(setup, "new")
    await new.beat()
    await converge(old, new)
    await new.leave()
    await converge(old)
    assert partitions(old) == list(range(8))
    assert [each.classic is not None for each in group_of(setup).members.values()] == [True]


@in_virtual_time(consumer=AT_ONCE)
async def test_a_static_consumer_that_returns_as_a_classic_one_downgrades_the_group(
    setup: Setup,
) -> None:
    consumer = Consumer(setup, "new", instance_id="a")
    await consumer.beat()
    await consumer.leave(-2)
    classic = Classic(setup, instance_id="a")
    assert await classic.join() == 0
    assert list(classic_of(setup).static_members) == ["a"]
    assert partitions(classic) == list(range(8))
    assert await classic.beat() == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_an_empty_consumer_group_gives_way(setup: Setup) -> None:
    new = Consumer(setup, "new")
    await new.beat()
    await new.leave()
    old = Classic(setup)
    old.member_id = await new_id(setup)
    old.joined = await old.ask_to_join()
    assert old.joined.error_code == 0
    assert snapshot(setup) == {}


# Classic members of a consumer group


@pytest.mark.parametrize(("version", "of_assignment"), [(0, 0), (2, 2), (3, 3), (9, 3)])
def test_an_assignment_has_the_version_of_its_subscription(
    version: int, of_assignment: int
) -> None:
    """At most the newest version of an assignment, since newer ones only add fields."""

    async def scenario(setup: Setup) -> None:
        await Consumer(setup, "new").beat()
        data = version.to_bytes(2) + subscription(["orders"], version=min(version, 3))[2:]
        protocols = (("range", data),)
        member_id = await new_id(setup, protocols=protocols)
        joined = await join(setup, member_id, protocols=protocols)
        response = await sync(setup, joined)
        assert version_of(response.assignment) == of_assignment

    run(scenario, GroupConfig(partitions=1, consumer=AT_ONCE))


@in_virtual_time(consumer=AT_ONCE)
async def test_a_classic_member_may_join_a_consumer_group(setup: Setup) -> None:
    new = Consumer(setup, "new")
    await new.beat()
    old = Classic(setup)
    assert await old.join() == 0
    assert old.owned == {}, "nothing is free yet"
    assert (old.joined.protocol_name, old.joined.members) == ("range", [])
    await converge(new, old)
    assert partitions(old, new) == list(range(8))
    assert await heartbeat(setup, old.joined) == 0


@in_virtual_time(consumer=AT_ONCE)
async def test_refusals_to_a_classic_member(setup: Setup) -> None:
    told: list[JoinRefusal] = []
    setup.coordinator._join_refused = told.append
    await Consumer(setup, "new").beat()
    old = Classic(setup)
    await old.join()
    stranger = join(setup, "", version=3, protocol_type="connect", protocols=(("range", b""),))
    assert (await stranger).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = join(setup, "", version=3, protocols=(("sticky", subscription(["orders"])),))
    assert (await other).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    broken = join(setup, "", version=3, protocols=(("range", b"\x00"),))
    assert (await broken).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert [refusal.code for refusal in told] == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL] * 3
    assert "assignor in common" in told[0].reason
    assert "cannot be decoded" in told[2].reason
    wrong = await sync(setup, old.joined, protocol_name="sticky")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stale = await sync(setup, old.joined, generation_id=77)
    assert stale.error_code == ErrorCode.ILLEGAL_GENERATION
    old.joined.member_id = "new"
    assert await heartbeat(setup, old.joined) == ErrorCode.UNKNOWN_MEMBER_ID
    old.joined.member_id = "nobody"
    assert await heartbeat(setup, old.joined) == ErrorCode.UNKNOWN_MEMBER_ID


@in_virtual_time(
    consumer=ConsumerConfig(assignment_interval_ms=0, migration=MigrationPolicy.DISABLED)
)
async def test_without_migration_no_classic_member_may_join(setup: Setup) -> None:
    await Consumer(setup, "new").beat()
    assert await Classic(setup).join() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@in_virtual_time(consumer=AT_ONCE)
async def test_a_classic_member_that_does_not_join_again_is_dropped(setup: Setup) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    new = Consumer(setup, "new")
    await new.beat()
    for _ in range(3):
        assert await heartbeat(setup, old.joined) == ErrorCode.REBALANCE_IN_PROGRESS
        await new.beat()
        await asyncio.sleep(5)
    assert await heartbeat(setup, old.joined) == ErrorCode.UNKNOWN_MEMBER_ID
    await settle(new)
    assert new.of() == set(range(8))


@in_virtual_time(consumer=AT_ONCE)
async def test_a_classic_member_that_does_not_ask_for_its_assignment_is_dropped(
    setup: Setup,
) -> None:
    new = Consumer(setup, "new")
    await new.beat()
    member_id = (await join(setup, "", protocols=(("range", subscription(["orders"])),))).member_id
    options: Any = {"rebalance_timeout_ms": 5_000}
    await join(setup, member_id, protocols=(("range", subscription(["orders"])),), **options)
    await asyncio.sleep(6)
    assert list(group_of(setup).members) == ["new"]


@in_virtual_time(consumer=AT_ONCE)
async def test_leave_group_removes_members_of_either_protocol(setup: Setup) -> None:
    new = Consumer(setup, "new", instance_id="a")
    other = Consumer(setup, "other")
    await settle(new, other)
    old = Classic(setup)
    await old.join()
    response = await leave(setup, ("", "a"), (old.member_id, None), ("nobody", None), ("", "z"))
    assert [each.error_code for each in response.members] == [0, 0, 25, 25]
    assert list(group_of(setup).members) == ["other"]


@in_virtual_time(consumer=AT_ONCE)
async def test_a_mixed_group_survives_a_restart(setup: Setup) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    new = Consumer(setup, "new")
    await new.beat()
    before = snapshot(setup)
    await setup.restart()
    assert snapshot(setup) == before
    await converge(old, new)
    assert partitions(old, new) == list(range(8))


@in_virtual_time(consumer=AT_ONCE)
async def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(
    setup: Setup,
) -> None:
    old = Classic(setup)
    await classic_group(setup, old)
    setup.log.fate = lambda: "refused"
    response = await Consumer(setup, "new").ask()
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    setup.log.fate = lambda: "ok"
    assert await old.beat() == 0
    assert snapshot(setup) == {}


# Descriptions


@in_virtual_time(consumer=AT_ONCE)
async def test_both_kinds_are_listed_with_their_type(setup: Setup) -> None:
    await Consumer(setup, "new", group="modern").beat()
    await classic_group(setup, Classic(setup))

    async def listed(**filters: Any) -> set[tuple[str, str, str]]:
        response = await setup.coordinator.admin.list_groups(ListGroupsRequest(**filters))
        return {(g.group_id, g.group_type, g.group_state) for g in response.groups}

    modern, old = ("modern", "consumer", "Stable"), (GROUP, "classic", "Stable")
    assert await listed() == {modern, old}
    assert await listed(types_filter=["Consumer"]) == {modern}
    assert await listed(types_filter=["classic"]) == {old}
    assert await listed(states_filter=["stable"], types_filter=["share"]) == set()
    request = DescribeGroupsRequest(groups=["modern"])
    for version, code in ((5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        response = await setup.coordinator.admin.describe_groups(request, version)
        (described,) = response.groups
        assert (described.group_state, described.error_code) == ("Dead", code)
    assert described.error_message == "Group modern is not a classic group."
    assert (await describe(setup, GROUP)).error_message == "Group readers is not a consumer group."
    assert (await describe(setup, "none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await describe(setup, "")).error_code == ErrorCode.INVALID_GROUP_ID
