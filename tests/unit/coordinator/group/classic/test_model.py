"""Classic groups under random members, timeouts, restarts and log failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator_members import commit, committed, heartbeat, join, leave, sync
from group_setup import Setup, run
from lakelog.base.errors import ErrorCode
from lakelog.coordinator.group.config import GroupConfig
from lakelog.protocol.groups import JoinGroupResponse

SEEDS_EACH = 4
SEEDS_EACH_LONG = 10
STEPS = 80
GROUPS = ("one", "two")
PARTITIONS = 8
ANSWERED_WITHIN_S = 120
"""Upper bound of a rebalance, a sync and an append together."""

TIMEOUTS = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 9_000}
EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


@dataclass
class Client:
    """A client process that follows the protocol."""

    group: str
    instance_id: str | None
    member_id: str = ""
    joined: JoinGroupResponse | None = None
    owned: frozenset[int] = frozenset()
    busy: bool = False

    def forget(self) -> None:
        self.member_id, self.joined, self.owned = "", None, frozenset()


@dataclass
class Model:
    """The responses of all members, and the invariants between them."""

    setup: Setup
    random: random.Random
    clients: list[Client] = field(default_factory=list)
    generations: dict[str, int] = field(default_factory=dict)
    """The highest generation with an assignment; earlier generations are not durable."""
    owners: dict[tuple[str, int, int], str] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    possible: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    committing: set[tuple[str, int]] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    done: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0

    def spawn(self, client: Client, action: Callable[[Client], Any]) -> None:
        client.busy = True
        self.tasks.add(asyncio.ensure_future(self.act(client, action)))

    async def act(self, client: Client, action: Callable[[Client], Any]) -> None:
        await action(client)
        client.busy = False

    async def answer(self, reply: Any) -> Any:
        response = await asyncio.wait_for(reply, ANSWERED_WITHIN_S)
        code = getattr(response, "error_code", 0)
        assert code in EXPECTED, response
        return response

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    # Members

    async def join(self, client: Client) -> None:
        highest = self.generations.get(client.group, 0)
        reply = join(
            self.setup,
            client.member_id,
            group=client.group,
            instance_id=client.instance_id,
            version=self.random.choice((3, 5, 9)),
            **TIMEOUTS,  # type: ignore[arg-type]
        )
        response = await self.answer(reply)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif response.error_code:
            self.refused(client, response.error_code)
        else:
            client.member_id, client.joined = response.member_id, response
            client.owned = frozenset()
            assert response.generation_id >= highest, "a generation may only grow"
            self.count("joined")

    def refused(self, client: Client, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.forget()
        client.joined, client.owned = None, frozenset()

    async def sync(self, client: Client) -> None:
        joined = client.joined
        assert joined is not None
        shares: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = self.shares([each.member_id for each in joined.members])
        reply = sync(self.setup, joined, shares, group=client.group, instance_id=client.instance_id)
        response = await self.answer(reply)
        if response.error_code:
            self.refused(client, response.error_code)
            return
        client.owned = frozenset(response.assignment)
        highest = self.generations.get(client.group, 0)
        self.generations[client.group] = max(joined.generation_id, highest)
        for partition in client.owned:
            self.own(client, joined, partition)
        self.count("assigned")

    def shares(self, members: list[str]) -> dict[str, bytes]:
        order = self.random.sample(members, len(members))
        return {each: bytes(range(i, PARTITIONS, len(order))) for i, each in enumerate(order)}

    def own(self, client: Client, joined: JoinGroupResponse, partition: int) -> None:
        """A static member that returns keeps its assignment under its new id."""
        key = (client.group, joined.generation_id, partition)
        owner = client.instance_id or joined.member_id
        assert self.owners.setdefault(key, owner) == owner, f"two owners of {key}"

    async def beat(self, client: Client) -> None:
        assert client.joined is not None
        code = await heartbeat(
            self.setup, client.joined, group=client.group, instance_id=client.instance_id
        )
        assert code in EXPECTED
        if code not in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            self.refused(client, code)

    async def leave(self, client: Client) -> None:
        member = (client.member_id, client.instance_id)
        client.forget()
        await self.answer(leave(self.setup, member, group=client.group))

    async def die(self, client: Client) -> None:
        client.forget()

    # Offsets

    async def commit(self, client: Client) -> None:
        """One commit of a partition at a time, so its order is known."""
        joined = client.joined
        free = [each for each in client.owned if (client.group, each) not in self.committing]
        if joined is None or not free:
            return
        key = (client.group, self.random.choice(free))
        self.committing.add(key)
        self.next_offset += 1
        offset = self.next_offset
        self.possible.setdefault(key, set()).add(offset)
        reply = commit(
            self.setup,
            {("orders", key[1]): offset},
            joined,
            group=client.group,
            group_instance_id=client.instance_id,
        )
        code = (await self.answer(reply)).topics[0].partitions[0].error_code
        assert code in EXPECTED
        self.committing.discard(key)
        if code == 0:
            self.acknowledged[key] = offset
            self.possible[key] = {offset}
            self.count("committed")

    async def check_offsets(self) -> None:
        """Check that each acknowledged offset exists, or a later offset of unknown outcome."""
        for group in GROUPS:
            found = await committed(self.setup, group)
            for partition in range(PARTITIONS):
                key = (group, partition)
                offset = found.get(("orders", partition))
                may_be = self.possible.get(key, set()) | {self.acknowledged.get(key)}
                assert offset in may_be, key

    # Restarts and steps

    @property
    def hosted(self) -> bool:
        """Whether all partitions are loaded."""
        return len(self.setup.coordinator._host.active_shards()) == self.setup.config.partitions

    async def restart(self) -> None:
        settled = not self.setup.log.in_flight and self.hosted
        before = [await committed(self.setup, group) for group in GROUPS] if settled else None
        await self.setup.restart()
        await self.check_offsets()
        if before is not None:
            after = [await committed(self.setup, group) for group in GROUPS]
            assert after == before, "memory differed from the log"
        self.count("restarted")

    async def step(self) -> None:
        await asyncio.sleep(self.random.choice((0, 0, 0.05, 0.5, 1, 3)))
        if self.random.random() < 0.03:
            await self.restart()
        for client in self.clients:
            if client.joined is not None and not client.busy and self.random.random() < 0.3:
                self.spawn(client, self.beat)
            elif (action := self.choose(client)) is not None:
                self.spawn(client, action)

    def choose(self, client: Client) -> Callable[[Client], Any] | None:
        luck = self.random.random()
        if client.busy or self.random.random() < 0.4:
            return None
        if client.member_id and luck < 0.01:
            return self.random.choice((self.leave, self.die))
        if client.joined is None or luck < 0.03:
            return self.join
        if not client.owned:
            return self.sync
        return self.commit

    async def settle(self) -> None:
        """Stop all failures; then every request is answered and no member waits."""
        self.setup.log.fate = lambda: "ok"
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=2 * ANSWERED_WITHIN_S)
        for task in self.tasks:
            assert task.done(), "left unanswered"
            task.result()
        await self.restart()


def _fate(source: random.Random) -> Callable[[], str]:
    def fate() -> str:
        return source.choices(("ok", "refused", "lost", "kept"), (88, 4, 4, 4))[0]

    return fate


async def _play(setup: Setup, seed: int) -> dict[str, int]:
    source = random.Random(seed)
    setup.log.delay_s = lambda: source.choice((0.0, 0.0, 0.01, 0.2, 2.0))
    setup.log.fate = _fate(source)
    model = Model(setup, source)
    model.clients = [
        Client(group, f"{group}-{i}" if i == 0 else None) for group in GROUPS for i in range(4)
    ]
    for _ in range(STEPS):
        await model.step()
    await model.settle()
    return model.done


@pytest.mark.histories
@pytest.mark.parametrize("first", range(0, 5 * SEEDS_EACH_LONG, SEEDS_EACH_LONG))
def test_random_histories(first: int, is_long: bool) -> None:
    seeds = SEEDS_EACH_LONG if is_long else SEEDS_EACH
    config = GroupConfig(partitions=2, initial_rebalance_delay_ms=500, members_max=4)
    done: dict[str, int] = {}
    for seed in range(first, first + seeds):

        async def scenario(setup: Setup, seed: int = seed) -> dict[str, int]:
            try:
                return await _play(setup, seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error

        for what, count in run(scenario, config, seed).items():
            done[what] = done.get(what, 0) + count
    for what in ("joined", "assigned", "committed", "restarted"):
        assert done.get(what, 0) > seeds, f"hardly anything happened: {done}"
