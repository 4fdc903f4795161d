from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.server.handlers.api_versions import handle, handle_unsupported
from lakelog.server.routes import advertised_apis
from memory_broker import MemoryBroker

E = ErrorCode


def request(name: str = "a-client", **fields: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version="1.0", **fields)


def test_a_client_names_its_software_and_gets_the_served_apis(world: MemoryBroker) -> None:
    asked = world.start(handle, request(), 3)
    assert asked.response().api_keys == advertised_apis(in_cluster=False)
    assert asked.context.connection.session.client_software == "a-client 1.0"


@pytest.mark.parametrize("name", ["", "a client", "-x"])
def test_a_name_that_kip_511_does_not_allow_is_rejected(world: MemoryBroker, name: str) -> None:
    assert world.ask(handle, request(name), 3).error_code == E.INVALID_REQUEST
    assert not world.ask(handle, request(), 2).error_code, "older versions have no name"


@pytest.mark.parametrize("fields", [{"cluster_id": "elsewhere"}, {"node_id": 2}])
def test_a_client_of_another_cluster_or_node_bootstraps_again(
    world: MemoryBroker, fields: dict[str, Any]
) -> None:
    assert world.ask(handle, request(**fields), 5).error_code == E.REBOOTSTRAP_REQUIRED
    own = request(cluster_id=world.broker.cluster_id, node_id=1)
    assert not world.ask(handle, own, 5).error_code


def test_an_unknown_version_gets_the_true_range(world: MemoryBroker) -> None:
    response = world.ask(handle_unsupported, ApiVersionsRequest(), 0)
    assert response.error_code == E.UNSUPPORTED_VERSION
    own = next(each for each in advertised_apis(in_cluster=False) if each.api_key == 18)
    assert own in response.api_keys
