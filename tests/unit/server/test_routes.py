from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lakelog.protocol.heartbeat import HeartbeatRequest
from lakelog.protocol.registry import APIS
from lakelog.server import handlers
from lakelog.server.routes import advertised_apis, served_apis
from lakelog.server.served_api import ServedApi

_MODULES = sorted(
    path.stem for path in Path(handlers.__path__[0]).glob("*.py") if path.stem != "__init__"
)


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("name", _MODULES)
def test_a_handler_module_is_named_by_its_api_and_says_so_first(name: str) -> None:
    module = import_module(f"lakelog.server.handlers.{name}")
    api = module.API.api
    assert _snake(api.name) == name
    assert (module.__doc__ or "").startswith(f"{api.name} ({api.key}): ")
    assert module.API.handle is module.handle


def test_every_api_of_the_registry_has_one_handler() -> None:
    assert [each.api for each in served_apis()] == [APIS[key] for key in sorted(APIS)]


def test_apis_are_advertised_in_the_served_versions_except_produce() -> None:
    ranges = {
        each.api_key: (each.min_version, each.max_version)
        for each in advertised_apis(in_cluster=True)
    }
    declared = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    assert ranges == declared | {0: (0, declared[0][1])}


def _served(versions: str | None = None, advertised: str | None = None) -> ServedApi[Any]:
    return ServedApi(
        HeartbeatRequest,
        lambda *_: None,
        done="Everything.",
        versions=versions,
        advertised=advertised,
    )


def test_a_handler_may_serve_fewer_versions_than_the_protocol_declares() -> None:
    narrow = _served(versions="1-3")
    row = narrow.advertised_row
    assert (row.api_key, row.min_version, row.max_version) == (12, 1, 3)
    assert repr(_served().served_versions) == "0-4"
    row = _served(versions="1-3", advertised="0-3").advertised_row
    assert (row.min_version, row.max_version) == (0, 3)


@pytest.mark.parametrize(
    "options",
    [{"versions": "0-5"}, {"versions": "3-2"}, {"versions": "0-3", "advertised": "0-4"}],
)
def test_no_version_is_served_undeclared_or_offered_beyond_the_newest_served_one(
    options: dict[str, str],
) -> None:
    with pytest.raises(AssertionError):
        _served(**options)


def test_only_apis_that_copy_nothing_are_decoded_in_place_and_only_the_hot_ones_learn() -> None:
    in_place = {each.api.name for each in served_apis() if each.in_place}
    assert in_place == {"Produce", "Fetch", "ListOffsets"}
    learning = {each.api.name for each in served_apis() if each.learn is not None}
    assert learning == {"Produce", "Fetch"}


def test_a_broker_alone_does_not_serve_the_apis_between_brokers() -> None:
    """Any client could otherwise register brokers, and change the ISR of partitions."""
    alone = {each.api_key for each in advertised_apis(in_cluster=False)}
    assert set(APIS) - alone == {56, 62, 63, 67}
