"""A broker's place in its cluster: the cluster id, its registration, and roles elsewhere."""

from __future__ import annotations

import pytest

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.brokers import plan_producer_ids
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord, PartitionRecord
from lakelog.protocol.brokers import AlterPartitionRequest, BrokerHeartbeatRequest
from lakelog.server.authentication import Process
from lakelog.server.controller.membership import KeptTopics
from memory_broker import MemoryBroker

OWN = 1


def test_the_id_of_a_cluster_is_chosen_once() -> None:
    with MemoryBroker() as world:
        control, known = world._server._control, world.broker.cluster_id
        assert known
        assert world.run(control.choose_cluster_id(None)) == known
        assert world.run(control.choose_cluster_id(known)) == known
        with pytest.raises(KafkaError, match="INCONSISTENT_CLUSTER_ID"):
            world.run(control.choose_cluster_id("another"))


def test_a_single_broker_registers_only_advertised_addresses() -> None:
    with MemoryBroker() as world:
        bound = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
        control = world._server._control
        control.metadata.incarnation_id = world.metadata._brokers[OWN] = b"n" * 16
        before = control.membership.epoch
        work = control.register(
            bound, (), directory_id=bytes(16), previous_epoch=-1, kept=KeptTopics()
        )
        world.run(work)
        own = world.broker.image.brokers[OWN]
        assert (own.endpoints, own.is_fenced) == ((), False)
        assert own.epoch > before


def test_proposals_share_no_connection_with_other_requests() -> None:
    with MemoryBroker() as world:
        control, endpoint = world._server._control, Endpoint("PLAINTEXT", "h", 9093)
        other = BrokerRecord(2, b"n" * 16, 1, (endpoint,), None)
        world.run(control.metadata.submit(lambda image: Plan((other,), None)))
        proposing, beating = (
            control.relays._peer_for(request, 2)
            for request in (AlterPartitionRequest(), BrokerHeartbeatRequest())
        )
        assert proposing is control.peers.proposals.get(2)
        assert beating is control.peers.own_requests.get(2)
        assert len({proposing, beating, control.peer(2), control.peers.called.get(2)}) == 4


def test_a_role_elsewhere_is_that_in_a_partition_without_a_replica_here() -> None:
    with MemoryBroker() as world:
        topic_id = world.create("orders", 2)
        control = world._server._control
        elsewhere = PartitionRecord(topic_id, 1, (7,), (7,), 7, 3, 1)
        world.run(world.broker.metadata.submit(lambda image: Plan((elsewhere,), None)))
        assert control.role_elsewhere("orders", 0) is None
        assert control.role_elsewhere("orders", 9) is None
        assert control.role_elsewhere("missing", 0) is None
        role = control.role_elsewhere(topic_id, 1)
        assert role is not None and not role.is_leader
        assert role == control.role_elsewhere("orders", 1)


def test_the_end_of_a_process_ends_the_lease_grant_not_to_fence_it() -> None:
    with MemoryBroker() as world:
        control = world._server._control
        control.controller.lease_grants.give(2)
        control._report_dead(Process(2, b"a" * 16))
        assert control.controller.lease_grants.divide({2: 7}) == ({2: 7}, None)
        world.pass_time(0.01)


def test_producer_epochs_that_may_be_lost_are_recorded() -> None:
    with MemoryBroker() as world:
        world.run(world.broker.metadata.submit(lambda image: plan_producer_ids(image, 1)))
        assert world.broker.image.forgotten_epochs_end < world.broker.image.next_producer_id
        world.run(world._server._control.forget_epochs())
        assert world.broker.image.forgotten_epochs_end == world.broker.image.next_producer_id
