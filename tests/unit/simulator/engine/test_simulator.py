"""The engine of a seed: streams of random numbers, and the hash of events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulator.engine.simulator import Simulator


@contextmanager
def simulator(seed: int = 1) -> Iterator[Simulator]:
    made = Simulator(seed)
    yield made
    made.loop.close()


def hash_of(seed: int, *events: tuple[object, ...]) -> str:
    with simulator(seed) as made:
        for event in events:
            made.trace(*event)
        return made.hash


def test_the_hash_is_of_all_events_in_their_order() -> None:
    first, second = ("death", "broker-1"), ("death", "broker-2")
    hashes = [hash_of(1), hash_of(1, first), hash_of(1, first, second), hash_of(1, second, first)]
    assert len(set(hashes)) == 4
    assert hash_of(1, first, second) == hash_of(1, first, second)


def test_draws_from_one_stream_do_not_change_another() -> None:
    with simulator() as one, simulator() as two, simulator(2) as other_seed:
        stream = one.random_stream("nemesis")
        one.random_stream("network").random()
        drawn = [stream.random() for _ in range(3)]
        again = two.random_stream("nemesis")
        assert [again.random() for _ in range(3)] == drawn
        assert two.random_stream("network").random() != drawn[0]
        assert other_seed.random_stream("nemesis").random() != drawn[0]
