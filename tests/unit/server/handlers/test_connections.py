from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord, FeatureRecord
from lakelog.protocol.commit_sets import FEATURE
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from lakelog.server.authentication import (
    ANONYMOUS,
    MECHANISM,
    NONCE_BYTES,
    AuthenticationState,
    Ends,
    Process,
    is_broker,
)
from lakelog.server.handlers.connections import (
    api_versions,
    finalized_features,
    sasl_authenticate,
    sasl_handshake,
    supported_features,
    unsupported_api_versions,
)
from lakelog.server.requests.context import Context
from lakelog.server.routes import advertised_apis
from memory_broker import MemoryBroker

E = ErrorCode


def request(name: str = "a-client", **fields: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version="1.0", **fields)


def test_a_client_names_its_software_and_gets_the_served_apis(world: MemoryBroker) -> None:
    asked = world.start(api_versions, request(), 3)
    assert asked.response().api_keys == advertised_apis(in_cluster=False)
    assert asked.context.connection.session.client_software == "a-client 1.0"


@pytest.mark.parametrize("name", ["", "a client", "-x"])
def test_a_name_that_kip_511_does_not_allow_is_rejected(world: MemoryBroker, name: str) -> None:
    assert world.ask(api_versions, request(name), 3).error_code == E.INVALID_REQUEST
    assert not world.ask(api_versions, request(), 2).error_code, "older versions have no name"


@pytest.mark.parametrize("fields", [{"cluster_id": "elsewhere"}, {"node_id": 2}])
def test_a_client_of_another_cluster_or_node_bootstraps_again(
    world: MemoryBroker, fields: dict[str, Any]
) -> None:
    assert world.ask(api_versions, request(**fields), 5).error_code == E.REBOOTSTRAP_REQUIRED
    own = request(cluster_id=world.broker.cluster_id, node_id=1)
    assert not world.ask(api_versions, own, 5).error_code


def test_an_unknown_version_gets_the_true_range(world: MemoryBroker) -> None:
    response = world.ask(unsupported_api_versions, ApiVersionsRequest(), 0)
    assert response.error_code == E.UNSUPPORTED_VERSION
    own = next(each for each in advertised_apis(in_cluster=False) if each.api_key == 18)
    assert own in response.api_keys


@pytest.mark.parametrize(
    ("mechanism", "version"), [("PLAIN", 0), ("PLAIN", 1), ("", 1), (MECHANISM, 0)]
)
def test_clients_cannot_authenticate(mechanism: str, version: int) -> None:
    with MemoryBroker() as world:
        request = SaslHandshakeRequest(mechanism=mechanism)
        asked = world.start(sasl_handshake, request, version)
        assert asked.response().error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (
            asked.context.connection.session.authentication.state
            is AuthenticationState.NOT_REQUIRED
        )


def test_a_broker_begins_its_proof_once() -> None:
    with MemoryBroker() as world:
        request = SaslHandshakeRequest(mechanism=MECHANISM)
        asked = world.start(sasl_handshake, request, 1)
        response = asked.response()
        assert (response.error_code, response.mechanisms) == (0, [MECHANISM])
        assert (
            asked.context.connection.session.authentication.state
            is AuthenticationState.AUTHENTICATING
        )
        again = sasl_handshake(world.broker, asked.context, request)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE


CALLER = Process(2, b"c" * 16)
NONCE = b"1" * NONCE_BYTES


class Called:
    """A broker, the connection of a caller, and the keys of both."""

    def __init__(self, world: MemoryBroker) -> None:
        self._world = world
        record = BrokerRecord(2, CALLER.incarnation_id, 1, (), None)
        world.run(world.broker.metadata.submit(lambda image: Plan((record,), None)))
        request = SaslHandshakeRequest(mechanism=MECHANISM)
        self.context: Context = world.start(sasl_handshake, request, 1).context
        own = Process(1, world.broker.metadata.incarnation_id)
        self.ends = Ends(world.broker.cluster_id, CALLER, own)

    def send(self, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self._world.run(sasl_authenticate(self._world.broker, self.context, request))

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
        response = world.ask(sasl_authenticate, request, version)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_clients_before_version_4_are_not_sent_features_whose_lowest_level_is_0() -> None:
    assert "transaction.version" not in {each.name for each in supported_features(3)}
    assert "transaction.version" in {each.name for each in supported_features(4)}


def test_commit_sets_are_listed_for_clients_of_any_version() -> None:
    """Clients look for the supported level before they send a commit set (ADR 8)."""
    for version in (3, 4):
        rows = {each.name: each for each in supported_features(version)}
        assert (rows[FEATURE].min_version, rows[FEATURE].max_version) == (1, 1)


def test_finalized_levels_come_from_the_image() -> None:
    image = MetadataImage().apply(FeatureRecord("transaction.version", 1))
    levels = {each.name: each.max_version_level for each in finalized_features(image)}
    assert levels == {"group.version": 1, "lakelog.metadata.version": 1, "transaction.version": 1}
    image = image.apply(FeatureRecord("transaction.version", 0))
    assert "transaction.version" not in {each.name for each in finalized_features(image)}
