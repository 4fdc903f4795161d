"""The state of a client's authentication, and the APIs that each state allows.

```
           begin                  succeed
NOT_REQUIRED -----> AUTHENTICATING --------> AUTHENTICATED    without SASL: brokers alone

           begin                  succeed                  expire
HANDSHAKE --------> AUTHENTICATING --------> AUTHENTICATED --------> EXPIRED
                          ^                        | begin              | begin
                          +------------------------+--------------------+
```
`begin` is SaslHandshake, `succeed` the last SaslAuthenticate, and `expire` the end of the lifetime
that `connections.max.reauth.ms` gives a session (KIP-368). An attempt that fails ends the
connection, so there is no state for it.

Every transition calls `on_change`: a connection must not repeat a request that it has cached under
another principal, nor after the session has expired.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.server.auth.broker_proof import ProofCheck
from lakelog.server.auth.principal import ANONYMOUS, Principal

_SASL_HANDSHAKE = 17
_API_VERSIONS = 18
_SASL_AUTHENTICATE = 36


class AuthenticationState(Enum):
    """A state of authentication; see the diagram above."""

    NOT_REQUIRED = auto()
    HANDSHAKE = auto()
    AUTHENTICATING = auto()
    AUTHENTICATED = auto()
    EXPIRED = auto()


_ALLOWED = {
    AuthenticationState.HANDSHAKE: frozenset({_API_VERSIONS, _SASL_HANDSHAKE}),
    AuthenticationState.AUTHENTICATING: frozenset({_SASL_AUTHENTICATE}),
    AuthenticationState.EXPIRED: frozenset({_SASL_HANDSHAKE}),
}
"""Keys of the allowed APIs, as in Kafka's `SaslServerAuthenticator`; other states allow all."""


class Authentication:
    """The state of one connection, and its principal."""

    __slots__ = ("_is_known", "broker_check", "on_change", "principal", "state")

    def __init__(self, *, is_required: bool) -> None:
        self.state = (
            AuthenticationState.HANDSHAKE if is_required else AuthenticationState.NOT_REQUIRED
        )
        self.principal = ANONYMOUS
        self._is_known = False
        self.broker_check: ProofCheck | None = None
        """The proof of a broker that is under way."""
        self.on_change: Callable[[], object] | None = None
        """Called after each transition."""

    def allows(self, api_key: int) -> bool:
        """Return whether the state allows requests of this API."""
        allowed = _ALLOWED.get(self.state)
        return allowed is None or api_key in allowed

    def begin(self) -> None:
        """Begin the first authentication, or another one of an authenticated client (KIP-368)."""
        assert self.state is not AuthenticationState.AUTHENTICATING
        self._change(AuthenticationState.AUTHENTICATING)

    def succeed(self, principal: Principal) -> None:
        """Accept the client as `principal`.

        Raises `KafkaError` (SASL_AUTHENTICATION_FAILED) if it was authenticated as another one
        before (KIP-368); the caller then closes the connection.
        """
        assert self.state is AuthenticationState.AUTHENTICATING, self.state
        # The connection's earlier requests were authorized for the first principal (as in Kafka's
        # `SaslServerAuthenticator`), so it cannot change.
        if self._is_known and principal != self.principal:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"{self.principal} cannot become {principal} on the same connection",
            )
        self.principal, self._is_known = principal, True
        self._change(AuthenticationState.AUTHENTICATED)

    def expire(self) -> None:
        """End the session's lifetime, unless the client is already authenticating again."""
        if self.state is AuthenticationState.AUTHENTICATED:
            self._change(AuthenticationState.EXPIRED)

    def _change(self, state: AuthenticationState) -> None:
        self.state = state
        if self.on_change is not None:
            self.on_change()
