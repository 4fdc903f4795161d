"""Terms rise, one for each election, whatever becomes of the requests."""

from __future__ import annotations

import pytest

from doubles.zookeeper import Faults
from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.store.zookeeper.session import Disconnected
from zookeeper_kit import World, in_world


def test_two_brokers_never_get_the_same_term() -> None:
    async def work(world: World) -> None:
        first, second = await world.handle(), await world.handle()
        before = await first.terms.current()
        one = await first.terms.take(1, b"1" * 16, before)
        other = await second.terms.take(2, b"2" * 16, before)
        assert (one.broker_id, one.epoch) == (1, 1)
        assert other == one, "the loser learns the winner's term"

    in_world(work)


@pytest.mark.parametrize("seed", range(20))
def test_an_election_of_unknown_outcome_counts_once(seed: int) -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        world.ensemble.faults = Faults(loss_percent=30, expiry_percent=10)
        for epoch in range(1, 6):
            while True:
                try:
                    current = await handle.terms.current()
                    term = await handle.terms.take(1, b"1" * 16, current)
                    break
                except Disconnected:
                    continue
            assert term.epoch == epoch

    in_world(work, seed=seed)


def test_a_forgotten_term_is_detected() -> None:
    async def work(world: World) -> None:
        handle = await world.handle()
        backup = world.ensemble.committed
        await handle.take_term()
        world.ensemble.restore(backup)
        with pytest.raises(MetadataCorrupt, match="is at epoch 0, but epoch 1"):
            await handle.terms.current()

    in_world(work)
