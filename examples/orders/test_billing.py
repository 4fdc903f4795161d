"""Tests of the service with a real broker.

The plugin of lakelog brings `lakelog_broker`, one broker for the session, and
`lakelog_topic_factory`, topics that no other test has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from billing import Billing
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

import lakelog.testing
from lakelog.testing import Broker

TIMEOUT_S = 60


def send(broker: Broker, topic: str, *orders: object) -> None:
    """Write orders; return when the broker has them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for order in orders:
        producer.produce(topic, json.dumps(order))
    assert producer.flush(TIMEOUT_S) == 0


def read(broker: Broker, topic: str) -> list[Message]:
    """Return all committed records of a topic with one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            found.append(message)
    assert message is not None, f"the end of {topic} was not reached within {TIMEOUT_S} s"
    assert message.error().code() == KafkaError._PARTITION_EOF
    return found


def invoices(broker: Broker, topic: str) -> list[dict[str, object]]:
    return [json.loads(message.value()) for message in read(broker, topic)]


@pytest.fixture
def topics(lakelog_topic_factory: Callable[[str], str]) -> dict[str, str]:
    return {name: lakelog_topic_factory(name) for name in ("orders", "invoices", "rejected")}


@pytest.fixture
def billing(lakelog_broker: Broker, topics: dict[str, str]) -> Iterator[Billing]:
    """The service, in a consumer group of its own."""
    name = f"billing-{topics['orders']}"
    with closing(Billing(lakelog_broker.bootstrap_servers, name=name, **topics)) as service:
        yield service


def test_an_order_becomes_an_invoice(
    lakelog_broker: Broker, topics: dict[str, str], billing: Billing
) -> None:
    send(lakelog_broker, topics["orders"], {"id": 1, "price": 250, "count": 3})
    billing.handle_next()
    assert invoices(lakelog_broker, topics["invoices"]) == [{"order": 1, "total": 750}]


def test_an_order_without_a_price_is_rejected(
    lakelog_broker: Broker, topics: dict[str, str], billing: Billing
) -> None:
    send(lakelog_broker, topics["orders"], {"id": 1, "count": 3}, {"id": 2, "price": 5, "count": 1})
    billing.handle_next()
    billing.handle_next()
    (rejected,) = read(lakelog_broker, topics["rejected"])
    assert json.loads(rejected.value()) == {"id": 1, "count": 3}
    assert rejected.headers() == [("reason", b"not an order: KeyError('price')")]
    assert invoices(lakelog_broker, topics["invoices"]) == [{"order": 2, "total": 5}]


def test_a_broker_that_is_killed_costs_no_invoice() -> None:
    """The test has a broker of its own, so that no other test notices."""
    topics = {name: name for name in ("orders", "invoices", "rejected")}
    with (
        lakelog.testing.broker(list(topics)) as broker,
        closing(Billing(broker.bootstrap_servers, name="billing", **topics)) as service,
    ):
        send(broker, "orders", {"id": 1, "price": 10, "count": 1})
        service.handle_next()
        broker.kill()
        broker.start()
        send(broker, "orders", {"id": 2, "price": 10, "count": 2})
        service.handle_next()
        expected = [{"order": 1, "total": 10}, {"order": 2, "total": 20}]
        assert invoices(broker, "invoices") == expected
