"""A Fetch request of a test, over the simulated network."""

from __future__ import annotations

import contextlib

from lakelog.base.errors import ErrorCode
from simulator.brokers.host import BrokerHost
from simulator.checkers.observations import Place
from simulator.clients.consumers.reading import FETCH_VERSION, fetch_request
from simulator.cluster.nemesis import ClusterNemesis
from simulator.engine.process import Process
from simulator.network.connection import ClientConnection, NoResponse


async def fetch_code(
    nemesis: ClusterNemesis, host: BrokerHost, partition: Place
) -> ErrorCode | None:
    """Return the error of a Fetch from offset 0 at one broker; None without an answer."""
    connection = ClientConnection(nemesis._network, Process("reader"), host.address)
    request = fetch_request(partition, 0, committed=False, max_bytes=1 << 20, max_wait_ms=0)
    with contextlib.suppress(NoResponse):
        (topic,) = (await connection.call(request, FETCH_VERSION)).responses
        connection.close()
        return ErrorCode(topic.partitions[0].error_code)
    return None
