from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import pytest

from lakelog.server.monitoring.http import Request, Response
from lakelog.server.monitoring.pages import Pages
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.tail import TAILS_MAX
from memory_broker import MemoryBroker

_PASSING, _FAILING = Check("metadata", ""), Check("accepting", "not yet")


class Site:
    """The pages of a broker, with the checks that a test wants."""

    def __init__(self, world: MemoryBroker) -> None:
        self.checks = [_PASSING]
        self._world = world
        sources = world._server._monitoring._sources
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

    async def turns() -> int:
        count = 0

        async def count_turns() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count_turns())
        page = site._pages["/metrics/detail"]
        lines = (await page(Request("", {}, is_local=True))).body.count(b"\n")
        counting.cancel()
        assert lines > 3000
        return count

    assert world.run(turns()) >= 6


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
