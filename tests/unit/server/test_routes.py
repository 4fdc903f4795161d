from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from lakelog.protocol.registry import APIS
from lakelog.server import handlers
from lakelog.server.routes import advertised_apis, served_apis

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
    assert module.__doc__.startswith(f"{api.name} ({api.key}): ")
    assert module.API.handle is module.handle


def test_every_api_of_the_registry_has_one_handler() -> None:
    assert [each.api for each in served_apis()] == [APIS[key] for key in sorted(APIS)]


def test_apis_are_advertised_in_the_served_versions_except_produce() -> None:
    ranges = {each.api_key: (each.min_version, each.max_version) for each in advertised_apis()}
    served = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    assert ranges == served | {0: (0, served[0][1])}


def test_only_apis_that_copy_nothing_are_decoded_in_place_and_only_the_hot_ones_learn() -> None:
    in_place = {each.api.name for each in served_apis() if each.in_place}
    assert in_place == {"Produce", "Fetch", "ListOffsets"}
    learning = {each.api.name for each in served_apis() if each.learn is not None}
    assert learning == {"Produce", "Fetch"}
