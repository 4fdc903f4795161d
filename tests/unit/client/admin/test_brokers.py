from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.brokers import Brokers
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.protocol.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from scripted_broker import ScriptedBroker


def test_brokers_are_listed_by_id_with_fenced_ones(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    rows = [
        DescribeClusterBroker(broker_id=2, host="b", port=2, is_fenced=True),
        DescribeClusterBroker(broker_id=1, host="a", port=1, rack="r"),
    ]
    response = DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=rows)
    broker.on(DescribeClusterRequest, response)
    found = Brokers(cluster).describe()
    assert (found.cluster_id, found.controller_id) == ("c", 1)
    assert [(each.node_id, each.rack, each.is_fenced) for each in found.brokers] == [
        (1, "r", False),
        (2, None, True),
    ]
    (request,) = broker.asked(DescribeClusterRequest)
    assert request.include_fenced_brokers


def test_a_broker_that_cannot_be_unregistered_is_an_error(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    response = UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="broker 7 is not registered"
    )
    broker.on(UnregisterBrokerRequest, response, UnregisterBrokerResponse())
    with pytest.raises(ClientError, match="broker 7 is not registered") as caught:
        Brokers(cluster).unregister(7)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    Brokers(cluster).unregister(3)
    assert [each.broker_id for each in broker.asked(UnregisterBrokerRequest)] == [7, 3]
