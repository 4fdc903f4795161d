from __future__ import annotations

from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import Api
from lakelog.protocol.registry import APIS
from lakelog.server.connections.connection import Connection
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.requests.admission import refuse
from lakelog.server.requests.context import Context
from lakelog.wire.framing import decode_response, encode_response

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _refused(api: Api, version: int) -> Any:
    unused = cast(Connection, None)
    message = refuse(Context(unused, api, version, 7, "test"), api.request(), CODE)
    frame = b"".join(encode_response(api, version, 7, message))
    return decode_response(api, version, frame[4:])[1]


def _versions(api: Api) -> list[int]:
    """The versions whose response has an error code of its own."""
    fields = [each for each in api.response.__fields__ if each.name == "error_code"]
    return [each for each in api.versions if any(each in field.versions for field in fields)]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_code_is_in_a_well_formed_response_or_the_connection_is_closed(api: Api) -> None:
    with_code = _versions(api)
    for version in api.versions:
        if version in with_code:
            assert _refused(api, version).error_code == CODE
        else:
            with pytest.raises(ProtocolViolation, match=f"{api.name} v{version} is refused"):
                _refused(api, version)


def test_most_apis_have_a_code_of_their_own() -> None:
    assert sum(bool(_versions(api)) for api in APIS.values()) > len(APIS) / 2
