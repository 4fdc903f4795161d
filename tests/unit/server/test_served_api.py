from __future__ import annotations

from typing import Any

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.groups import HeartbeatRequest, HeartbeatResponse
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi

_ALL = api_for(HeartbeatRequest).versions


def _handle(broker: Broker, context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


def _served(**versions: Any) -> ServedApi[HeartbeatRequest]:
    return ServedApi(HeartbeatRequest, _handle, done="All.", **versions)


def _offered(api: ServedApi[HeartbeatRequest]) -> tuple[int, int, int]:
    row = api.advertised_row
    return row.api_key, row.min_version, row.max_version


def test_all_declared_versions_are_served_and_offered_by_default() -> None:
    api = _served()
    served = api.served_versions
    assert (served.lowest, served.highest) == (_ALL.lowest, _ALL.highest)
    assert _offered(api) == (api.api.key, _ALL.lowest, _ALL.highest)


def test_fewer_versions_are_offered_if_fewer_are_served() -> None:
    assert _offered(_served(versions="1-2"))[1:] == (1, 2)


def test_an_older_version_may_be_offered_than_is_served() -> None:
    api = _served(versions="2-3", advertised="0-3")
    assert (_offered(api)[1:], api.served_versions.lowest) == ((0, 3), 2)


@pytest.mark.parametrize(
    "versions",
    [
        {"versions": f"0-{_ALL.highest + 1}"},
        {"versions": "0-2", "advertised": "0-3"},
        {"versions": "0-3", "advertised": "0-2"},
        {"versions": "0-3", "advertised": "1-3"},
    ],
    ids=["not declared", "offered, not served", "newest not offered", "oldest not offered"],
)
def test_a_contradiction_fails_when_the_module_is_imported(versions: dict[str, str]) -> None:
    """A client chooses the newest offered version, and the broker has to understand it."""
    with pytest.raises(AssertionError):
        _served(**versions)
