from __future__ import annotations

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.endpoint import Endpoint
from lakelog.metadata.controller.brokers import plan_register_broker
from lakelog.protocol.cluster import DescribeClusterRequest
from lakelog.server.broker import Node
from lakelog.server.handlers.cluster import describe_cluster
from memory_broker import LOCAL, MemoryBroker


def register(world: MemoryBroker, broker_id: int, *endpoints: Endpoint) -> None:
    world.run(
        world.broker.metadata.submit(
            lambda image: plan_register_broker(
                image, broker_id, bytes([broker_id]) * 16, endpoints=endpoints, rack="r2"
            )
        )
    )


def nodes(world: MemoryBroker) -> list[Node]:
    """Return the brokers as a client of the listener PLAINTEXT sees them."""
    context = world.start(describe_cluster, DescribeClusterRequest(), 0).context
    return world.broker.nodes_for(context.connection)


def test_other_brokers_are_known_by_the_listener_of_the_client(world: MemoryBroker) -> None:
    register(world, 2, Endpoint("INSIDE", "10.0.0.2", 1), Endpoint("PLAINTEXT", "b2", 2))
    register(world, 3, Endpoint("INSIDE", "10.0.0.3", 3))
    register(world, 4)
    assert nodes(world) == [
        Node(1, *LOCAL),
        Node(2, "b2", 2, "r2"),
        Node(3, "10.0.0.3", 3, "r2"),
    ]


def test_a_new_configuration_has_connections_admitted_again(world: MemoryBroker) -> None:
    """A cached request holds limits of the configuration."""
    broker = world.broker
    generation = broker.admission.generation
    broker.use_config(BrokerConfig({"fetch.max.bytes": "4096"}))
    assert broker.fetch_bytes_max == 4096
    assert broker.admission.generation > generation
