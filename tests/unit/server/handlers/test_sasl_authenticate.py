"""SaslAuthenticate: the whole proof of a broker, and wrong ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord
from lakelog.protocol.connections import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from lakelog.server.auth.broker_proof import MECHANISM, NONCE_BYTES, Ends, Process
from lakelog.server.auth.principal import ANONYMOUS, is_broker
from lakelog.server.handlers import sasl_authenticate, sasl_handshake
from lakelog.server.requests.context import Context
from memory_broker import MemoryBroker

CALLER = Process(2, b"c" * 16)
NONCE = b"1" * NONCE_BYTES


class Called:
    """A broker, the connection of a caller, and the keys of both."""

    def __init__(self, world: MemoryBroker) -> None:
        self._world = world
        record = BrokerRecord(2, CALLER.incarnation_id, 1, (), None)
        world.run(world.broker.metadata.submit(lambda image: Plan((record,), None)))
        request = SaslHandshakeRequest(mechanism=MECHANISM)
        self.context: Context = world.start(sasl_handshake.handle, request, 1).context
        own = Process(1, world.broker.metadata.incarnation_id)
        self.ends = Ends(world.broker.cluster_id, CALLER, own)

    def send(self, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self._world.run(sasl_authenticate.handle(self._world.broker, self.context, request))

    def begin(self) -> bytes:
        response = self.send((2).to_bytes(4, "big") + NONCE)
        assert not response.error_code
        return bytes(response.auth_bytes)


@pytest.fixture
def called() -> Iterator[Called]:
    with MemoryBroker() as world:
        yield Called(world)


def test_a_registered_broker_proves_itself_and_gets_a_proof(called: Called) -> None:
    other = called.begin()
    assert called.context.principal == ANONYMOUS
    response = called.send(called.ends.mac(b"caller", NONCE, other))
    assert bytes(response.auth_bytes) == called.ends.mac(b"callee", NONCE, other)
    assert is_broker(called.context.principal, 2)
    assert not is_broker(called.context.principal, 1)


def test_a_wrong_proof_is_final(called: Called) -> None:
    other = called.begin()
    right = called.ends.mac(b"caller", NONCE, other)
    for token in (bytes(len(right)), right):
        response = called.send(token)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert called.context.principal == ANONYMOUS
    assert response.error_message == "an earlier token of this connection was wrong"


def test_the_proof_of_the_callee_is_not_that_of_a_caller(called: Called) -> None:
    other = called.begin()
    response = called.send(called.ends.mac(b"callee", NONCE, other))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "the caller is not a registered process of broker 2"


@pytest.mark.parametrize("version", range(3))
def test_a_token_without_a_handshake_is_refused(version: int) -> None:
    with MemoryBroker() as world:
        request = SaslAuthenticateRequest(auth_bytes=b"x")
        response = world.ask(sasl_authenticate.handle, request, version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
