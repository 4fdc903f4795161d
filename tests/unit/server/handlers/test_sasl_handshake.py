"""SaslHandshake over the wire."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.connections import SaslHandshakeRequest
from lakelog.server.auth.authentication import AuthenticationState
from lakelog.server.auth.broker_proof import MECHANISM
from lakelog.server.handlers import sasl_handshake
from memory_broker import MemoryBroker


@pytest.mark.parametrize(
    ("mechanism", "version"), [("PLAIN", 0), ("PLAIN", 1), ("", 1), (MECHANISM, 0)]
)
def test_clients_cannot_authenticate(mechanism: str, version: int) -> None:
    with MemoryBroker() as world:
        request = SaslHandshakeRequest(mechanism=mechanism)
        asked = world.start(sasl_handshake.handle, request, version)
        assert asked.response().error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (
            asked.context.connection.session.authentication.state
            is AuthenticationState.NOT_REQUIRED
        )


def test_a_broker_begins_its_proof_once() -> None:
    with MemoryBroker() as world:
        request = SaslHandshakeRequest(mechanism=MECHANISM)
        asked = world.start(sasl_handshake.handle, request, 1)
        response = asked.response()
        assert (response.error_code, response.mechanisms) == (0, [MECHANISM])
        assert (
            asked.context.connection.session.authentication.state
            is AuthenticationState.AUTHENTICATING
        )
        again = sasl_handshake.handle(world.broker, asked.context, request)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
