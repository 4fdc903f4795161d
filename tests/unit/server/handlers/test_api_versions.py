from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api_versions import ApiVersionsRequest
from lakelog.server.handlers.api_versions import handle, handle_unsupported
from lakelog.server.routes import advertised_apis


def _broker() -> Any:
    return SimpleNamespace(advertised_apis=advertised_apis(), cluster_id="here", node_id=1)


def _context(version: int) -> Any:
    session = SimpleNamespace(client_software="")
    return SimpleNamespace(version=version, connection=SimpleNamespace(session=session))


def request(name: str = "a-client", **fields: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version="1.0", **fields)


def test_a_client_names_its_software_and_gets_the_served_apis() -> None:
    context = _context(3)
    response = handle(_broker(), context, request())
    assert context.connection.session.client_software == "a-client 1.0"
    assert response.api_keys == advertised_apis()


@pytest.mark.parametrize("name", ["", "a client", "-x"])
def test_a_name_that_kip_511_does_not_allow_is_rejected(name: str) -> None:
    assert handle(_broker(), _context(3), request(name)).error_code == ErrorCode.INVALID_REQUEST
    assert not handle(_broker(), _context(2), request(name)).error_code, "older ones have none"


@pytest.mark.parametrize("fields", [{"cluster_id": "elsewhere"}, {"node_id": 2}])
def test_a_client_of_another_cluster_or_node_bootstraps_again(fields: dict[str, Any]) -> None:
    response = handle(_broker(), _context(5), request(**fields))
    assert response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    assert not handle(_broker(), _context(4), request()).error_code


def test_an_unknown_version_gets_the_true_range() -> None:
    response = handle_unsupported(_broker(), _context(0), None)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.api_keys == advertised_apis()
