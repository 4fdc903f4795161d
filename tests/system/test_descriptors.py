"""Descriptors run out: no log goes offline, and work continues once some are free again."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from client_apis import CLIENT_APIS
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.produce import ProduceRequest
from waiting import eventually
from wire_client import WireClient, batch_of, create_topic, fetch, host_and_port, produce

PARTITIONS = 40
LIMIT = 72
"""Of open files: too few for a file of each partition and the flood."""
FLOOD = 300
STORAGE_ERROR = 56
TOPIC = "wide"


class SmallBroker(BrokerProcess):
    """A broker that may open `LIMIT` files."""

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *super().command()]

    @contextlib.contextmanager
    def without_descriptors(self) -> Iterator[None]:
        """Keep the open descriptors of the process, and let it open no more."""
        limits = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            yield
        finally:
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SmallBroker]:
    with SmallBroker(tmp_path / "data", arguments=("--http", "127.0.0.1:0")) as broker:
        with WireClient(broker.bootstrap) as client:
            create_topic(client, TOPIC, partitions=PARTITIONS)
        yield broker


def use_all(client: WireClient, expected: int) -> None:
    """Produces one record to each partition, and reads all of them."""
    for index in range(PARTITIONS):
        answer = produce(client, TOPIC, batch_of(b"value"), partition=index)
        assert (answer.error_code, answer.base_offset) == (0, expected), index
    for index in range(PARTITIONS):
        answer = fetch(client, TOPIC, 0, partition=index)
        assert (answer.error_code, answer.high_watermark) == (0, expected + 1), index


def codes_of_all(client: WireClient) -> set[int]:
    return {
        produce(client, TOPIC, batch_of(b"value"), partition=index).error_code
        for index in range(PARTITIONS)
    }


def readiness(broker: Any) -> list[str]:
    try:
        with urllib.request.urlopen(f"http://{broker.http_address}/readyz") as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    return [failing["check"] for failing in found["failing"]]


def test_a_flood_of_connections_leaves_all_partitions_served(broker: SmallBroker) -> None:
    address = host_and_port(broker.bootstrap)
    with WireClient(broker.bootstrap) as client, ExitStack() as flood:
        use_all(client, 0)
        for _ in range(FLOOD):
            flood.enter_context(socket.create_connection(address, timeout=60))
        use_all(client, 1)
        eventually(lambda: "connections refused" in broker.log(), what="a line about refusals")
        assert readiness(broker) == []
        with urllib.request.urlopen(f"http://{broker.http_address}/metrics") as answer:
            refused = [
                float(line.split()[1])
                for line in answer.read().decode().splitlines()
                if line.startswith("lakelog_connections_refused_total ")
            ]
        assert refused[0] > FLOOD - LIMIT
        flood.close()
        with WireClient(broker.bootstrap) as other:
            use_all(other, 2)
    assert "offline" not in broker.log()
    broker.stop()


def test_without_descriptors_writes_fail_for_a_while_and_nothing_goes_offline(
    broker: SmallBroker,
) -> None:
    with WireClient(broker.bootstrap) as client:
        use_all(client, 0)
        with broker.without_descriptors():
            codes = codes_of_all(client)
            assert codes <= {0, STORAGE_ERROR}
            for index in range(PARTITIONS):
                assert fetch(client, TOPIC, 0, partition=index).error_code in (0, STORAGE_ERROR)
        assert eventually(lambda: codes_of_all(client) == {0}, what="all partitions write again")
    assert "offline" not in broker.log()
    broker.stop()


def test_the_first_request_of_an_api_opens_no_file(broker: SmallBroker) -> None:
    """Handlers, codecs and messages are there before they are needed."""
    with WireClient(broker.bootstrap) as client:
        client.call(ApiVersionsRequest(), 0)  # now the connection is accepted
        with broker.without_descriptors():
            for api in CLIENT_APIS.values():
                request: Any = api.request()
                if isinstance(request, ProduceRequest):
                    request.acks = -1
                client.call(request, api.max_version)
    assert "offline" not in broker.log()
    assert "request_failed" not in broker.log()
