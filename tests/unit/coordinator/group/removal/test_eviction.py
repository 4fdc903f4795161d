"""One eviction: its tombstones, and requests that arrive before it is decided."""

from __future__ import annotations

import asyncio

from coordinator_members import commit, commit_codes, committed, form, join, leave
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.records.codec import Decision
from lakelog.coordinator.group.shard import GroupShard
from lakelog.coordinator.shard import Now

ORDERS = ("orders", 0)


def _evict(setup: Setup, group: str = "a") -> None:
    def decide(shard: GroupShard, now: Now) -> Decision:
        return shard.evictions.evict(now, group)

    setup.coordinator._host.decide(0, decide)


@in_virtual_time()
async def test_an_evicted_group_is_gone_after_a_restart_too(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="a")
    await commit_codes(setup, {ORDERS: 7}, member, group="a")
    await leave(setup, (member.member_id, None), group="a")
    assert setup.coordinator.groups_owned == ["a"]
    _evict(setup)
    await asyncio.sleep(0.1)
    assert setup.coordinator.groups_owned == []
    assert setup.coordinator.counts.groups_evicted == 1
    assert setup.memory.used == setup.memory.leaving == 0
    await setup.restart()
    assert setup.coordinator.groups_owned == []


@in_virtual_time()
async def test_a_group_with_a_member_is_not_evicted(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="a")
    await commit_codes(setup, {ORDERS: 7}, member, group="a")
    _evict(setup)
    await asyncio.sleep(0.1)
    assert await committed(setup, "a") == {ORDERS: 7}
    assert setup.coordinator.counts.groups_evicted == 0


@in_virtual_time()
async def test_a_commit_that_precedes_the_eviction_keeps_the_group(setup: Setup) -> None:
    """It shows that the group is in use; the eviction waits for it and is decided again."""
    await commit_codes(setup, {ORDERS: 7}, group="a")
    await asyncio.sleep(11)
    setup.log.delay_s = lambda: 1.0
    reply = commit(setup, {ORDERS: 8}, group="a")
    _evict(setup)
    await reply
    await asyncio.sleep(3)
    assert await committed(setup, "a") == {ORDERS: 8}
    assert setup.coordinator.counts.groups_evicted == 0


@in_virtual_time()
async def test_a_commit_during_an_eviction_follows_it(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7, ("orders", 1): 7}, group="a")
    setup.log.delay_s = lambda: 1.0
    _evict(setup)
    reply = commit(setup, {ORDERS: 8}, group="a")
    await reply
    assert await committed(setup, "a") == {ORDERS: 8}
    assert setup.coordinator.counts.groups_evicted == 1


@in_virtual_time()
async def test_a_member_that_joins_during_an_eviction_has_its_group(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7}, group="a")
    setup.log.delay_s = lambda: 1.0
    _evict(setup)
    joined = await join(setup, group="a", version=3)
    assert joined.error_code == 0
    assert setup.coordinator.groups_owned == ["a"]
    assert setup.coordinator.group_count == 1


@in_virtual_time()
async def test_an_eviction_that_cannot_be_written_leaves_the_group(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7}, group="a")
    setup.log.fate = lambda: "refused"
    _evict(setup)
    await asyncio.sleep(0.1)
    setup.log.fate = lambda: "ok"
    assert await committed(setup, "a") == {ORDERS: 7}
    assert setup.coordinator.counts.groups_evicted == 0
    assert setup.memory.leaving == 0
    codes = await commit_codes(setup, {ORDERS: 8}, group="a")
    assert codes == [ErrorCode.NONE]
