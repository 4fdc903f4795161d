"""Consumer groups under random members, a bad network, restarts and log failures (KIP-848).

A client has one heartbeat in flight, as over one connection. The heartbeat may be lost on the way
there or back, be delivered twice, or take long. These invariants hold at every moment:

- No partition is held by two members. A member holds its assignment and the partitions that it has
  not reported as revoked; no client in the group believes to own more.
- Epochs of the group, of its assignment and of each member never go back.
- Memory equals the log: a restart changes nothing.

In the end all failures stop, and the members share all partitions evenly. The same holds where some
members use the classic protocol, and the group migrates as members join and leave.
"""

from __future__ import annotations

import random

import pytest

from consumer_members import Consumer
from consumer_model import Client, Model
from group_setup import Setup, run
from lakelog.coordinator.group.config import ConsumerConfig, GroupConfig

SEEDS = 2
SEEDS_LONG = 12
STEPS = 60
CLIENTS = 8
PARTITIONS = 12

pytestmark = [pytest.mark.histories]


async def _play(setup: Setup, seed: int, *, mixed: bool) -> dict[str, int]:
    source = random.Random(seed)
    setup.topics.topics["orders"] = (b"o" * 16, PARTITIONS)
    setup.log.delay_s = lambda: source.choice((0.0, 0.0, 0.01, 0.2, 2.0))
    setup.log.fate = lambda: source.choices(("ok", "refused", "lost", "kept"), (91, 3, 3, 3))[0]
    model = Model(setup, source)
    for number in range(CLIENTS):
        instance_id = f"s{number}" if number < 2 else None
        consumer = Consumer(
            setup, "", instance_id=instance_id, assignor=source.choice((None, None, "range"))
        )
        consumer.rebalance_timeout_ms = 20_000
        is_classic = mixed and number % 4 > 1
        model.clients.append(Client(consumer, number, is_classic=is_classic))
        model.start(model.clients[-1])
    for _ in range(STEPS):
        await model.step()
    for client in model.clients:
        client.consumer.assignor = "uniform"
    await model.settle()
    return model.done


def _play_all(interval_ms: int, *, mixed: bool, seeds: int) -> dict[str, int]:
    config = GroupConfig(
        partitions=1,
        initial_rebalance_delay_ms=500,
        consumer=ConsumerConfig(
            session_timeout_ms=15_000,
            heartbeat_interval_ms=3_000,
            assignment_interval_ms=interval_ms,
        ),
    )
    done: dict[str, int] = {}
    for seed in range(seeds):

        async def scenario(setup: Setup, seed: int = seed) -> dict[str, int]:
            try:
                return await _play(setup, seed, mixed=mixed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error

        for what, count in run(scenario, config, seed).items():
            done[what] = done.get(what, 0) + count
    return done


@pytest.mark.parametrize("interval_ms", [0, 1000])
def test_random_histories(interval_ms: int, is_long: bool) -> None:
    seeds = SEEDS_LONG if is_long else SEEDS
    done = _play_all(interval_ms, mixed=False, seeds=seeds)
    for what in ("assigned", "fenced", "left", "doubled", "lost", "restarted"):
        assert done.get(what, 0) >= seeds, f"hardly anything happened: {done}"


def test_random_histories_of_both_protocols(is_long: bool) -> None:
    seeds = SEEDS_LONG if is_long else SEEDS
    done = _play_all(0, mixed=True, seeds=seeds)
    for what in ("assigned", "fenced", "left", "mixed", "restarted"):
        assert done.get(what, 0) >= seeds, f"hardly anything happened: {done}"
