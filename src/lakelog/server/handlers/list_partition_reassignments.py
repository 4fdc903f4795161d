"""ListPartitionReassignments (46): always empty, because no move takes time."""

from __future__ import annotations

from lakelog.protocol.replicas import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


API = ServedApi(
    ListPartitionReassignmentsRequest,
    handle,
    done="Always empty, because no reassignment takes time.",
)
