"""The requests that commands send, counted by the broker: none is sent only to probe."""

from __future__ import annotations

import os
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_process import BrokerProcess
from lakelog.cli.main import run

_COUNT = "lakelog_request_duration_seconds_count"
_NOT_COUNTED = ("ApiVersions", "DescribeCluster")
"""The greeting of a connection; and the broker's call to its own advertised address."""


class CountingBroker(BrokerProcess):
    """A broker whose metrics count the requests by API."""

    def requests(self) -> Counter[str]:
        """Return the number of requests of each API since the start of the broker."""
        with urllib.request.urlopen(f"http://{self.http_address}/metrics", timeout=60) as response:
            text = response.read().decode()
        return Counter(
            {
                sample.labels["api"]: int(sample.value)
                for family in text_string_to_metric_families(text)
                for sample in family.samples
                if sample.name == _COUNT and sample.labels["api"] not in _NOT_COUNTED
            }
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountingBroker]:
    data = tmp_path_factory.mktemp("counted") / "data"
    with CountingBroker(data, arguments=("--http", "127.0.0.1:0")) as running:
        assert run(["topic", "create", "orders", "-b", running.bootstrap]) == 0
        yield running
        running.stop()


@pytest.mark.parametrize(
    ("command", "requests"),
    [
        ("topic list", {"Metadata": 2, "DescribeLogDirs": 1}),
        ("topic create {new}", {"CreateTopics": 1, "Metadata": 1}),
        (
            "topic describe orders",
            {"Metadata": 2, "DescribeConfigs": 1, "ListOffsets": 2, "DescribeLogDirs": 1},
        ),
        ("group list", {"Metadata": 1, "ListGroups": 1}),
        ("txn list", {"Metadata": 1, "ListTransactions": 1}),
        ("config get --topic orders", {"DescribeConfigs": 1}),
        (f"produce orders {os.devnull}", {"DescribeConfigs": 1, "Metadata": 1}),
    ],
)
def test_a_command_sends_no_request_only_to_probe(
    broker: CountingBroker, command: str, requests: dict[str, int]
) -> None:
    before = broker.requests()
    assert run([*command.format(new="new").split(), "-b", broker.bootstrap]) == 0
    assert broker.requests() - before == Counter(requests)
