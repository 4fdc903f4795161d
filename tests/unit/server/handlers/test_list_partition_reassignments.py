from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.replicas import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from lakelog.server.handlers.list_partition_reassignments import handle
from memory_broker import MemoryBroker


@pytest.mark.parametrize("names", [None, [], ["orders"], ["gone"]])
def test_no_reassignment_is_ongoing(world: MemoryBroker, names: list[str] | None) -> None:
    world.create("orders")
    topics = None
    if names is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in names
        ]
    response = world.ask(handle, ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert response.topics == []
