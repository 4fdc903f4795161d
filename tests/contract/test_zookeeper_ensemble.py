"""A simulated ensemble carries out operations as a real one does."""

from __future__ import annotations

import asyncio
import random
import secrets

import pytest

import zookeeper_ensemble
from doubles.randomness import SeededRandom
from doubles.zookeeper import SimulatedEnsemble
from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
from lakelog.metadata.store.zookeeper.session import (
    Check,
    Create,
    Delete,
    Operation,
    Put,
    Refusal,
    ZooKeeperSession,
)
from repetitions import first_of

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.java]
VERSIONS = (zookeeper_ensemble.NEWEST, zookeeper_ensemble.OLDEST)
_NAMES = ("a", "b", "a/c", "a/d", "b/c", "a/c/e")
_STEPS = 150


@pytest.mark.histories
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", first_of([1, 2, 3]))
def test_random_operations_have_the_same_results(seed: int, version: str) -> None:
    root = f"/differential-{secrets.token_hex(8)}"

    async def scenario() -> None:
        ensemble = SimulatedEnsemble(SeededRandom(seed))
        simulated: list[ZooKeeperSession] = [ensemble.session(), ensemble.session()]
        servers, timeout_s = zookeeper_ensemble.shared(version).servers, 4.0
        real: list[ZooKeeperSession] = [KazooSession(servers, timeout_s) for _ in range(2)]
        for session in (*simulated, *real):
            await session.open(lambda: None)
        owners = {session.session_id: number % 2 for number, session in enumerate(simulated)}
        owners |= {session.session_id: number for number, session in enumerate(real)}
        for sessions in (simulated, real):
            assert await sessions[0].write(Create(root)) is None
        numbers = random.Random(seed)
        for _ in range(_STEPS):
            number, operations = numbers.randrange(2), _operations(numbers, root)
            results = [await sessions[number].write(*operations) for sessions in (simulated, real)]
            assert results[0] == results[1], operations
            states = [
                await _state(sessions[number], root, owners) for sessions in (simulated, real)
            ]
            assert states[0] == states[1], operations
        for session in (*simulated, *real):
            await session.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", VERSIONS)
def test_watches_fire_for_the_same_operations(version: str) -> None:
    root = f"/watches-{secrets.token_hex(8)}"

    async def fired(session: ZooKeeperSession) -> list[tuple[bool, bool]]:
        await session.open(lambda: None)
        await session.write(Create(root), Create(f"{root}/a"), Create(f"{root}/end"))
        seen = []
        for operation in (
            Put(f"{root}/a", b"1"),
            Create(f"{root}/a/b"),
            Put(f"{root}/a/b", b"1"),
            Check(f"{root}/a", 1),
            Delete(f"{root}/a/b"),
            Delete(f"{root}/a"),
        ):
            data, children = asyncio.Event(), asyncio.Event()
            await session.get(f"{root}/a", data.set)
            await session.children(f"{root}/a", children.set)
            assert await session.write(operation) is None
            # Events come in the order of their operations.
            await session.get(f"{root}/end", (ended := asyncio.Event()).set)
            await session.write(Put(f"{root}/end", b""))
            await ended.wait()
            seen.append((data.is_set(), children.is_set()))
        await session.close()
        return seen

    async def scenario() -> None:
        real = KazooSession(zookeeper_ensemble.shared(version).servers, 4.0)
        simulated = SimulatedEnsemble(SeededRandom(1)).session()
        assert await fired(simulated) == await fired(real)

    asyncio.run(scenario())


def _operations(numbers: random.Random, root: str) -> tuple[Operation, ...]:
    return tuple(_operation(numbers, root) for _ in range(numbers.choice((1, 1, 1, 2, 3))))


def _operation(numbers: random.Random, root: str) -> Operation:
    path, version = f"{root}/{numbers.choice(_NAMES)}", numbers.randrange(-1, 3)
    match numbers.randrange(7):
        case 0 | 1 | 2:
            return Create(path, b"%d" % version, ephemeral=numbers.randrange(4) == 0)
        case 3 | 4:
            return Put(path, b"%d" % version, version)
        case 5:
            return Delete(path)
        case _:
            return Check(path, max(version, 0))


async def _state(
    session: ZooKeeperSession, root: str, owners: dict[int, int]
) -> list[tuple[object, ...] | None]:
    """Return data, version, owner and children of each node."""
    state: list[tuple[object, ...] | None] = []
    for path in (root, *(f"{root}/{name}" for name in _NAMES)):
        node, names = await session.get(path), await session.children(path)
        if node is None or names is None:
            state.append(None)
        else:
            state.append((node.data, node.version, owners.get(node.owner), sorted(names)))
    return state


def test_refusals_name_the_operation() -> None:
    """The comparison above would hold for two sessions that refuse nothing."""

    async def scenario() -> Refusal | None:
        session = SimulatedEnsemble(SeededRandom(1)).session()
        await session.open(lambda: None)
        return await session.write(Create("/x"), Create("/x"))

    refusal = asyncio.run(scenario())
    assert refusal is not None
    assert refusal.operation == 1
