from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakelog.server.fast_path.partition_request import NAMES_MAX
from twins import Client, Twins, run


@pytest.mark.parametrize("client_id", ["c" * 2000, "c"])
def test_requests_that_are_not_cached(tmp_path: Path, client_id: str) -> None:
    """Long names, and partitions that are not there, cost no more than without."""

    def scenario(twins: Twins) -> None:
        client = Client(twins, 13, client_id=client_id)
        for _ in range(4):
            twins.ask(client.produce(client.batch(10), partition=0 if client_id != "c" else 7))
        cached_request: Any = twins.quick.connection.cached_request
        assert cached_request is None or cached_request._partition is None

    run(tmp_path, scenario)


@pytest.mark.parametrize(("length", "is_cached"), [(0, True), (1, False)])
def test_the_names_of_a_cached_request_are_bounded(
    tmp_path: Path, length: int, is_cached: bool
) -> None:
    """Each connection keeps its cached request, so the limit bounds their memory."""
    client_id = "c" * (NAMES_MAX - len("orders") + length)

    def scenario(twins: Twins) -> None:
        # By name: the topic's id, which newer versions have, does not count.
        client = Client(twins, 9, client_id=client_id)
        for _ in range(2):
            twins.ask(client.produce(client.batch(10)))
        cached_request: Any = twins.quick.connection.cached_request
        assert (cached_request is not None) is is_cached

    run(tmp_path, scenario)


def test_only_the_second_equal_request_costs_templates(tmp_path: Path) -> None:
    """A client that alternates between partitions would make them for each request."""

    def scenario(twins: Twins) -> None:
        client = Client(twins, 9)
        prepared = []
        for partition in (0, 1, 0, 0):
            twins.ask(client.produce(client.batch(10, partition=partition), partition=partition))
            cached_request: Any = twins.quick.connection.cached_request
            prepared.append(cached_request._partition is not None)
        assert prepared == [False, False, False, True]

    run(tmp_path, scenario)
