from __future__ import annotations

import pytest

from lakelog.client import connect
from lakelog.client.errors import UnreachableError
from lakelog.protocol.groups import ListGroupsRequest, ListGroupsResponse
from scripted_broker import ScriptedBroker


def test_an_unreachable_cluster_fails_when_it_connects() -> None:
    with ScriptedBroker() as broker:
        address = broker.address
    with pytest.raises(UnreachableError, match="refused"):
        connect(address, timeout_s=0.05)


def test_the_administrator_is_created_once_and_closed_with_the_client(
    broker: ScriptedBroker,
) -> None:
    broker.on(ListGroupsRequest, ListGroupsResponse())
    with connect(broker.address, client_id="jobs", timeout_s=10.0) as client:
        assert client.admin is client.admin
        assert client.admin.groups.list() == []
    client.close()


def test_settings_of_one_producer_or_consumer_override_the_common_ones(
    broker: ScriptedBroker,
) -> None:
    with connect(broker.address, timeout_s=10.0) as client:
        with client.producer(acks=1, client_id="own") as producer:
            assert producer.partitions("orders") == 2
        with client.consumer(timeout_s=1.0) as consumer:
            consumer.assign([("orders", 0)])
            consumer.seek(("orders", 0), 3)
            assert consumer.position(("orders", 0)) == 3
        with pytest.raises(TypeError):
            client.producer(no_such_setting=1)
        with client.reader() as reader:
            assert list(reader.read("orders", 0, 3, 3)) == []
        with pytest.raises(ValueError, match="must not be empty"):
            client.transactional_producer("")
