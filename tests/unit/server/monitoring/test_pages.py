from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import FetchRequest
from lakelog.protocol.groups import HeartbeatRequest
from lakelog.server.monitoring.http import Request, Response
from lakelog.server.monitoring.pages import TAILS_MAX, Pages, RequestTail, compat, detail
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.sources import Sources
from lakelog.server.requests.metrics import RequestMetrics
from memory_broker import MemoryBroker
from storage_kit import append_in_transaction

_PASSING, _FAILING = Check("metadata", ""), Check("accepting", "not yet")


class Site:
    """The pages of a broker, with the checks that a test wants."""

    def __init__(self, world: MemoryBroker) -> None:
        self.checks = [_PASSING]
        self._world = world
        sources = world._server.monitoring._sources
        self._pages = Pages(sources, lambda: self.checks).by_path()

    def get(self, path: str, *, is_local: bool = True, **query: str) -> Response:
        work = self._pages[path](Request(path, query, is_local))
        return self._world.run(work)

    def watch(self) -> Response:
        """Open a tail of requests, and read its first line."""
        response = self.get("/debug/requests")
        assert response.parts is not None
        self._world.run(anext(response.parts))
        return response


@pytest.fixture
def site(world: MemoryBroker) -> Site:
    return Site(world)


def test_readiness_names_the_failing_checks(site: Site) -> None:
    assert site.get("/readyz").status is HTTPStatus.OK
    site.checks = [_PASSING, _FAILING]
    response = site.get("/readyz")
    assert response.status is HTTPStatus.SERVICE_UNAVAILABLE
    failing = [{"check": "accepting", "reason": "not yet"}]
    assert json.loads(response.body) == {"status": "not ready", "failing": failing}
    checks = json.loads(site.get("/readyz", verbose="").body)["checks"]
    assert [check["passes"] for check in checks] == [True, False]


def test_a_broker_that_is_not_ready_is_alive(site: Site) -> None:
    """A failing health page would have the broker killed while it recovers."""
    site.checks = [_FAILING]
    assert site.get("/healthz").status is HTTPStatus.OK


def test_the_version_names_broker_and_cluster(site: Site, world: MemoryBroker) -> None:
    shown = json.loads(site.get("/version").body)
    assert (shown["node_id"], shown["cluster_id"]) == (
        world.broker.node_id,
        world.broker.cluster_id,
    )


@pytest.mark.parametrize("compat", ["true", "false"])
def test_other_exporters_names_are_shown_on_request(compat: str) -> None:
    with MemoryBroker(lakelog_metrics_compat=compat) as world:
        text = Site(world).get("/metrics").body
    assert (b"\nkafka_brokers 1\n" in text) is (compat == "true")
    assert text.endswith(b"\n") and b"\n\n" not in text


def test_the_loop_has_turns_while_a_long_page_is_made(site: Site, world: MemoryBroker) -> None:
    world.create("orders", 300)

    async def iterations() -> int:
        count = 0

        async def count_iterations() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_iterations())
        page = site._pages["/metrics/detail"]
        lines = (await page(Request("", {}, is_local=True))).body.count(b"\n")
        counting.cancel()
        assert lines > 3000
        return count

    assert world.run(iterations()) >= 6


def test_requests_are_shown_to_this_host_only(site: Site) -> None:
    """They name clients and their addresses."""
    assert site.get("/debug/requests", is_local=False).status is HTTPStatus.FORBIDDEN


def test_an_unknown_api_is_an_error_and_case_does_not_matter(site: Site) -> None:
    response = site.get("/debug/requests", api="Fetsch")
    assert response.status is HTTPStatus.BAD_REQUEST
    assert b"'Fetsch'" in response.body
    assert site.get("/debug/requests", api="fETCH").status is HTTPStatus.OK


def test_a_watcher_that_leaves_makes_room_for_another(site: Site, world: MemoryBroker) -> None:
    watchers = [site.watch() for _ in range(TAILS_MAX)]
    assert site.get("/debug/requests").status is HTTPStatus.TOO_MANY_REQUESTS
    for watcher in watchers:
        assert watcher.parts is not None
        world.run(watcher.parts.aclose())
    assert site.get("/debug/requests").status is HTTPStatus.OK
    requests = world.broker.requests
    assert not requests._watchers


class Header(NamedTuple):
    version: int = 4
    client_id: str = "a client"


def note(
    requests: RequestMetrics,
    kind: type[FetchRequest] | type[HeartbeatRequest] = HeartbeatRequest,
    client_id: str = "a client",
) -> None:
    header = Header(client_id=client_id)
    requests.on_noteworthy(api_for(kind), header, "10.0.0.1:4", 0.001, 50)


def read(world: MemoryBroker, lines: AsyncGenerator[bytes, None]) -> list[dict[str, Any]]:
    text: bytes = world.run(anext(lines))
    return [json.loads(line) for line in text.splitlines()]


def test_a_watcher_sees_the_requests_that_it_asked_for(world: MemoryBroker) -> None:
    requests = world.broker.requests
    lines = RequestTail(world.clock, api="HEARTBEAT", client_id="a client").lines(requests)
    assert read(world, lines) == [{"watching": True}]
    note(requests, FetchRequest)
    note(requests, client_id="another")
    note(requests)
    (found,) = read(world, lines)
    assert (found["api"], found["client_id"], found["size_bytes"]) == ("Heartbeat", "a client", 50)
    assert found["time_ms"] == world.clock.wall_ms()
    world.run(lines.aclose())


def test_a_slow_watcher_learns_how_many_it_missed(world: MemoryBroker) -> None:
    requests = world.broker.requests
    lines = RequestTail(world.clock).lines(requests)
    read(world, lines)
    for _ in range(10_003):
        note(requests)
    assert read(world, lines)[-1] == {"missed": 3}
    world.run(lines.aclose())


def test_without_a_watcher_nothing_is_kept(world: MemoryBroker) -> None:
    requests = world.broker.requests
    quiet = requests.noteworthy_s
    lines = RequestTail(world.clock).lines(requests)
    read(world, lines)
    assert requests.noteworthy_s < 0 <= quiet
    world.run(lines.aclose())
    assert requests.noteworthy_s == quiet


@pytest.fixture
def sources(world: MemoryBroker) -> Sources:
    """A broker with `orders`, whose partition 1 ends at 4, before an open transaction of 1."""
    world.create("orders", 11)
    world.append("orders", 1, count=4)
    log = world.partition("orders", 1).log
    append_in_transaction(log, (7, 0, 0), now_ms=world.clock.wall_ms())
    world.partition("orders", 1).note_flush()
    return world._server.monitoring._sources


def samples(lines: Iterable[str], name: str, *labels: str) -> list[float]:
    """Return the numbers of a name, in the order of their lines, with all of these labels."""
    found = (line for line in lines if line.startswith(f"{name}{{"))
    return [float(line.rpartition(" ")[2]) for line in found if all(one in line for one in labels)]


def test_a_partition_has_one_line_for_each_number(sources: Sources) -> None:
    lines = list(detail(sources))
    labels = 'topic="orders",partition="1"'
    expected = {
        "log_start_offset": 0,
        "log_end_offset": 5,
        "high_watermark": 5,
        "last_stable_offset": 4,
        "segments": 1,
        "producers": 1,
    }
    shown = {name: samples(lines, f"lakelog_partition_{name}", labels) for name in expected}
    assert shown == {name: [number] for name, number in expected.items()}


def test_partitions_are_in_numerical_order(world: MemoryBroker, sources: Sources) -> None:
    world.append("orders", 10, count=9)
    lines = list(detail(sources))
    ends = samples(lines, "lakelog_partition_log_end_offset")
    assert ends == [0, 5, *[0] * 8, 9]


@pytest.mark.parametrize("isr", [(1, 2), (1,)])
def test_the_other_exporters_names_show_replicas_that_lag(
    world: MemoryBroker, sources: Sources, isr: tuple[int, ...]
) -> None:
    world.change_leader("orders", 1, (1, 2), index=1)
    world.change_leader("orders", 1, isr, index=1)
    lines = list(compat(sources))
    labels = 'topic="orders",partition="1"'
    assert samples(lines, "kafka_topic_partition_in_sync_replica", labels) == [len(isr)]
    name = "kafka_topic_partition_under_replicated_partition"
    assert samples(lines, name, labels) == [len(isr) < 2]
    assert samples(lines, "kafka_topic_partitions", 'topic="orders"') == [11]
    assert samples(lines, "kafka_topic_partition_current_offset", labels) == [5]
