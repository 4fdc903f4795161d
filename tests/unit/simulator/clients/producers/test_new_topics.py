from __future__ import annotations

import pytest

from simulator.checkers.observations import Fate
from simulator.clients.producers.new_topics import NewTopicProducer
from simulator.cluster.plan import NEW_TOPICS, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.long
def test_each_transaction_has_a_topic_of_its_own_and_waits_for_no_batch() -> None:
    plan = ClusterPlan(8.0, frozenset({NEW_TOPICS}), frozenset({"pause"}), store="file")
    world = ClusterWorld(2, plan)
    assert run_world(world).violations == ()
    topics = {topic for client in world.pool.clients for topic, _ in places_of(client)}
    assert len(topics) > 4
    sent = world.records.sent.values()
    fates = {each.transaction.fate for each in sent if each.transaction is not None}
    assert {Fate.COMMITTED, Fate.ABORTED} <= fates


def places_of(client: object) -> list[tuple[str, int]]:
    assert isinstance(client, NewTopicProducer)
    return client._known
