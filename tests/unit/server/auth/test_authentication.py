from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.registry import APIS
from lakelog.server.auth.authentication import Authentication, AuthenticationState
from lakelog.server.auth.principal import ANONYMOUS, Principal, broker_principal

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
