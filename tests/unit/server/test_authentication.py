from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerRecord
from lakelog.network_client import NetworkClientError
from lakelog.protocol.connections import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from lakelog.protocol.registry import APIS
from lakelog.server.authentication import (
    ANONYMOUS,
    MECHANISM,
    NONCE_BYTES,
    Authentication,
    AuthenticationState,
    BrokersApart,
    Ends,
    NoQuotas,
    Principal,
    Process,
    ProofCheck,
    RegisteredBrokers,
    broker_principal,
    prove,
)
from lakelog.server.routes import between_brokers
from lakelog.wire.schema import Message
from memory_broker import InlineTasks
from simulator.engine.loop import SimulatedLoop


def test_a_principal_is_written_as_acls_and_quotas_name_it() -> None:
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_without_an_authorizer_an_anonymous_client_may_use_each_api() -> None:
    authorizer = BrokersApart(())
    assert {authorizer.authorize(ANONYMOUS, api) for api in APIS.values()} == {ErrorCode.NONE}


def test_only_a_broker_may_use_the_apis_between_brokers() -> None:
    authorizer = BrokersApart(between_brokers())
    refused = {
        api.name
        for api in APIS.values()
        if authorizer.authorize(ANONYMOUS, api) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    }
    assert refused == {
        "AlterPartition",
        "BrokerRegistration",
        "BrokerHeartbeat",
        "AllocateProducerIds",
    }
    broker = broker_principal(2)
    assert {authorizer.authorize(broker, api) for api in APIS.values()} == {ErrorCode.NONE}


def test_without_quotas_no_request_is_charged_whatever_its_size() -> None:
    quotas = NoQuotas()
    assert all(
        quotas.charge(ANONYMOUS, "client", api, size_bytes=100 << 20) is None
        for api in APIS.values()
    )


CALLER, CALLEE = Process(1, b"a" * 16), Process(2, b"b" * 16)
ENDS = Ends("cluster", CALLER, CALLEE)
ONE, TWO = b"1" * NONCE_BYTES, b"2" * NONCE_BYTES


class Callee:
    """A callee that knows the caller as `caller`, and the tokens that crossed the network."""

    def __init__(
        self, own: Process = CALLEE, caller: Process = CALLER, cluster_id: str = "cluster"
    ) -> None:
        self._check = ProofCheck(cluster_id, own, TWO)
        self._caller = caller
        self.tokens: list[bytes] = []
        self.is_convinced = False

    def respond(self, request: Message) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            assert request.mechanism == MECHANISM
            return SaslHandshakeResponse(mechanisms=[MECHANISM])
        assert isinstance(request, SaslAuthenticateRequest)
        token = bytes(request.auth_bytes)
        self.tokens.append(token)
        if self._check.node_id < 0:
            answer = self._check.begin(token)
        else:
            answer = self._check.answer(token, self._caller.incarnation_id)
            self.is_convinced = answer is not None
        if answer is None:
            return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        self.tokens.append(answer)
        return SaslAuthenticateResponse(auth_bytes=answer)


def call(callee: Callee, ends: Ends = ENDS, nonce: bytes = ONE) -> bool:
    """Return whether the caller is convinced."""
    proof = prove(ends, nonce)
    try:
        request = next(proof)
        while True:
            request = proof.send(callee.respond(request))
    except StopIteration:
        return True
    except NetworkClientError:
        return False


def test_two_processes_of_a_cluster_convince_each_other_without_their_secrets() -> None:
    callee = Callee()
    assert call(callee)
    assert callee.is_convinced
    crossed = b"".join(callee.tokens)
    assert CALLER.incarnation_id not in crossed
    assert CALLEE.incarnation_id not in crossed


@pytest.mark.parametrize(
    "ends",
    [
        ENDS._replace(caller=Process(1, b"x" * 16)),
        ENDS._replace(callee=Process(2, b"x" * 16)),
        ENDS._replace(caller=Process(3, CALLER.incarnation_id)),
        ENDS._replace(callee=Process(3, CALLEE.incarnation_id)),
        ENDS._replace(cluster_id="another"),
    ],
    ids=["caller", "callee", "caller's node id", "callee's node id", "cluster"],
)
def test_a_caller_that_does_not_know_both_processes_is_refused(ends: Ends) -> None:
    class Known(Callee):
        def respond(self, request: Message) -> Message:
            response = super().respond(request)
            self._check.node_id = CALLER.node_id if self._check.node_id >= 0 else -1
            return response

    callee = Known()
    assert not call(callee, ends)
    assert not callee.is_convinced


def test_a_process_that_cannot_read_the_metadata_does_not_pass_for_the_callee() -> None:
    class Squatter(Callee):
        """Accepts everything, at the address of another broker."""

        def respond(self, request: Message) -> Message:
            super().respond(request)
            if isinstance(request, SaslHandshakeRequest):
                return SaslHandshakeResponse()
            return SaslAuthenticateResponse(auth_bytes=bytes(NONCE_BYTES))

    assert not call(Squatter())


def test_a_recorded_proof_is_worth_nothing() -> None:
    callee = Callee()
    call(callee)
    first, _, proof, _ = callee.tokens
    later = ProofCheck("cluster", CALLEE, b"3" * NONCE_BYTES)
    assert later.begin(first) is not None
    assert later.answer(proof, CALLER.incarnation_id) is None


@pytest.mark.parametrize("token", [b"", b"x", bytes(1 << 20), b"\xff" * (4 + NONCE_BYTES)])
def test_a_malformed_first_token_is_refused(token: bytes) -> None:
    assert ProofCheck("cluster", CALLEE, TWO).begin(token) is None


def test_a_callee_that_does_not_have_the_mechanism_ends_the_proof() -> None:
    proof = prove(ENDS, ONE)
    next(proof)
    with pytest.raises(NetworkClientError, match="ILLEGAL_SASL_STATE"):
        proof.send(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


OWN, REGISTERED_CALLER, FORMER = Process(1, b"o" * 16), Process(2, b"c" * 16), Process(2, b"f" * 16)


class Metadata:
    """An image that knows the former process of broker 2, and a store that knows live ones."""

    def __init__(self, live: Mapping[int, bytes] | None) -> None:
        record = BrokerRecord(2, FORMER.incarnation_id, 1, (), None)
        self.image = MetadataImage().apply_all([record], 1)
        self._live = live
        self.looks = 0

    async def live_brokers(self) -> Mapping[int, bytes]:
        self.looks += 1
        await asyncio.sleep(1.0)
        if self._live is None:
            raise MetadataUnavailable("no quorum")
        return self._live


def answers(metadata: Any, *callers: Process) -> list[bool]:
    """Return which callers, all at once, are taken for registered processes."""
    loop = SimulatedLoop(None)
    registered = RegisteredBrokers(metadata, InlineTasks(loop))

    async def answer(caller: Process) -> bool:
        check = ProofCheck("cluster", OWN, TWO)
        check.begin(caller.node_id.to_bytes(4, "big") + ONE)
        token = Ends("cluster", caller, OWN).mac(b"caller", ONE, TWO)
        return await registered.answer(check, token) is not None

    async def ask() -> list[bool]:
        return list(await asyncio.gather(*map(answer, callers)))

    try:
        return loop.run_until_complete(ask())
    finally:
        loop.close()


def test_a_process_of_the_image_is_known_without_a_look_into_the_store() -> None:
    metadata = Metadata(None)
    assert answers(metadata, FORMER) == [True]
    assert not metadata.looks


def test_a_process_that_the_image_does_not_show_yet_is_found_in_the_store() -> None:
    assert answers(Metadata({2: REGISTERED_CALLER.incarnation_id}), REGISTERED_CALLER) == [True]


def test_a_stranger_is_refused_also_while_the_store_cannot_be_read() -> None:
    stranger = Process(7, b"s" * 16)
    assert answers(Metadata({2: REGISTERED_CALLER.incarnation_id}), stranger) == [False]
    assert answers(Metadata(None), REGISTERED_CALLER, stranger) == [False, False]


def test_many_wrong_proofs_cost_one_look_at_a_time() -> None:
    metadata = Metadata({2: REGISTERED_CALLER.incarnation_id})
    strangers = [Process(number, b"s" * 16) for number in range(100)]
    assert not any(answers(metadata, *strangers))
    assert metadata.looks == 1


ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
KEYS = {*APIS, SASL_HANDSHAKE, SASL_AUTHENTICATE}


def allowed(authentication: Authentication) -> set[int]:
    return {key for key in KEYS if authentication.allows(key)}


def authenticated(principal: Principal = ALICE) -> Authentication:
    authentication = Authentication(is_required=True)
    authentication.begin()
    authentication.succeed(principal)
    return authentication


def test_a_client_of_a_listener_without_sasl_is_anonymous_and_may_ask_anything() -> None:
    authentication = Authentication(is_required=False)
    assert authentication.state is AuthenticationState.NOT_REQUIRED
    assert authentication.principal == ANONYMOUS
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert allowed(authentication) == KEYS


def test_a_broker_may_prove_itself_on_a_listener_without_sasl() -> None:
    authentication = Authentication(is_required=False)
    authentication.begin()
    assert allowed(authentication) == {SASL_AUTHENTICATE}
    with pytest.raises(AssertionError):
        authentication.begin()
    authentication.succeed(broker_principal(2))
    assert allowed(authentication) == KEYS
    assert str(authentication.principal) == "Broker:2"


def test_each_state_allows_the_apis_that_lead_to_the_next() -> None:
    authentication = Authentication(is_required=True)
    assert authentication.state is AuthenticationState.HANDSHAKE
    assert allowed(authentication) == {API_VERSIONS, SASL_HANDSHAKE}
    authentication.begin()
    assert allowed(authentication) == {SASL_AUTHENTICATE}
    assert authentication.principal == ANONYMOUS
    authentication.succeed(ALICE)
    assert allowed(authentication) == KEYS
    assert authentication.principal == ALICE
    authentication.expire()
    assert allowed(authentication) == {SASL_HANDSHAKE}
    authentication.begin()
    assert allowed(authentication) == {SASL_AUTHENTICATE}


def test_every_transition_is_reported() -> None:
    authentication, states = Authentication(is_required=True), list[AuthenticationState]()
    authentication.on_change = lambda: states.append(authentication.state)
    authentication.begin()
    authentication.succeed(ALICE)
    authentication.expire()
    authentication.begin()
    authentication.succeed(ALICE)
    assert states == [
        AuthenticationState.AUTHENTICATING,
        AuthenticationState.AUTHENTICATED,
        AuthenticationState.EXPIRED,
        AuthenticationState.AUTHENTICATING,
        AuthenticationState.AUTHENTICATED,
    ]


def test_a_client_keeps_its_principal_when_it_authenticates_again() -> None:
    authentication = authenticated()
    authentication.begin()
    with pytest.raises(KafkaError, match="User:alice cannot become User:bob") as caught:
        authentication.succeed(BOB)
    assert caught.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (authentication.state, authentication.principal) == (
        AuthenticationState.AUTHENTICATING,
        ALICE,
    )


def test_a_session_does_not_expire_while_its_client_authenticates_again() -> None:
    authentication = authenticated()
    authentication.begin()
    authentication.expire()
    assert authentication.state is AuthenticationState.AUTHENTICATING


def test_success_follows_an_attempt_only() -> None:
    for authentication in (Authentication(is_required=True), authenticated()):
        with pytest.raises(AssertionError):
            authentication.succeed(ALICE)
