"""`lakelog cluster health` over the simulated network, by the command's own code.

The command waits for each response in its thread, which a simulation does not have. Each run of the
command therefore ends at the first unknown response. The simulated network brings it, and the next
run continues.
"""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

from lakelog.cli.commands.cluster import health_of
from lakelog.client.admin import Admin
from lakelog.client.cluster import Cluster
from lakelog.client.errors import UnreachableError
from lakelog.protocol.api import api_for
from lakelog.wire.schema import Message
from simulator.network.connection import Connections, NoResponse

R = TypeVar("R", bound=Message)

_TIMEOUT_S = 1.5
_ADDRESS = "simulated:9092"


class _Missing(Exception):  # noqa: N818 - an event
    """The command needs the response of a broker to a request."""

    def __init__(self, node_id: int, request: Message) -> None:
        super().__init__(node_id, request)
        self.node_id = node_id
        self.request = request


class _KnownResponses(Cluster):
    """Returns responses that are known; all requests but those to one broker go to `node_id`."""

    def __init__(self, node_id: int) -> None:
        super().__init__(_ADDRESS)
        self._node_id = node_id
        self.known: dict[tuple[int, str], Message | None] = {}
        """By broker and request; None without a response."""

    def ask_any(self, request: Message, kind: type[R], *, timeout_s: float | None = None) -> R:
        return self.ask(self._node_id, request, kind)

    def ask(self, node_id: int, request: Message, kind: type[R], **limits: Any) -> R:
        key = node_id, repr(request)
        if key not in self.known:
            raise _Missing(node_id, request)
        response = self.known[key]
        if response is None:
            raise UnreachableError(f"broker {node_id} does not answer")
        assert isinstance(response, kind)
        return response


class _KnownAdmin(Admin):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(_ADDRESS)
        self._cluster = cluster


async def ask_health(node_id: int, connections: Connections) -> dict[str, Any]:
    """Return the JSON of the command with one broker as its bootstrap server.

    connections: to all brokers. Raises `KafkaError` if that broker does not answer.
    """
    cluster = _KnownResponses(node_id)
    while True:
        try:
            return dict(health_of(_KnownAdmin(cluster)).data)
        except _Missing as missing:
            asked, request = missing.node_id, missing.request
            version = api_for(type(request)).max_version
            response: Message | None = None
            with contextlib.suppress(NoResponse):
                response = await connections.to(asked).call(request, version, _TIMEOUT_S)
            cluster.known[asked, repr(request)] = response
