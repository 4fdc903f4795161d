from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.change import change
from lakelog.client.cluster import Cluster
from lakelog.client.errors import OutcomeUnknownError, UnreachableError
from lakelog.protocol.topics import CreateTopicsRequest, CreateTopicsResponse
from scripted_broker import ScriptedBroker


def test_a_change_without_an_answer_may_have_been_made(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(CreateTopicsRequest, None, CreateTopicsResponse())
    with pytest.raises(OutcomeUnknownError, match="creating topic 'x' may or may not") as error:
        change(cluster, CreateTopicsRequest(), CreateTopicsResponse, "creating topic 'x'")
    assert error.value.code is ErrorCode.NETWORK_EXCEPTION
    assert len(broker.asked(CreateTopicsRequest)) == 1, "it was not repeated"


def test_a_change_that_was_never_sent_was_not_made() -> None:
    with ScriptedBroker() as broker:
        address = broker.address
    with Cluster(address, timeout_s=1.0) as cluster, pytest.raises(UnreachableError):
        change(cluster, CreateTopicsRequest(), CreateTopicsResponse, "creating topic 'x'")
