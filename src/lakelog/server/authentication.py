"""Identity and permissions of clients: principals, proofs of brokers, states of authentication.

Clients are not authenticated yet: every listener is PLAINTEXT, and its clients are
`User:ANONYMOUS`. Authorizers and quotas (KIP-13, KIP-124, KIP-219) are interfaces, and admission
control (`server/requests/admission.py`) enforces their decisions. Operations on single topics and
groups are not asked here: a handler answers them per resource.

Brokers of a cluster prove their identity to each other. The incarnation id of a process, 16 random
bytes, is stored in the metadata store alone: a process that knows the ids of both ends can read the
store, and is a broker. The proof does not contain the ids. Each end sends an HMAC-SHA256 over fresh
random numbers of both, with the ids as its key. So a recorded proof is worthless on another
connection and for another process.

    caller                                       callee
      SaslHandshake  LAKELOG-BROKER   -->
      SaslAuthenticate  node id, R1   -->
                                      <--  R2
      SaslAuthenticate  HMAC("caller", ...)  -->
                                      <--  HMAC("callee", ...)

A proof does not encrypt the connection, and does not protect it from a host in between.

The state of a connection allows some APIs:

           begin                  succeed
NOT_REQUIRED -----> AUTHENTICATING --------> AUTHENTICATED    without SASL: brokers alone

           begin                  succeed                  expire
HANDSHAKE --------> AUTHENTICATING --------> AUTHENTICATED --------> EXPIRED
                          ^                        | begin              | begin
                          +------------------------+--------------------+

`begin` is SaslHandshake, `succeed` the last SaslAuthenticate, and `expire` the end of the lifetime
that `connections.max.reauth.ms` gives a session (KIP-368). An attempt that fails ends the
connection, so there is no state for it.

Every transition calls `on_change`: a connection must not repeat a request that it has cached under
another principal, nor after the session has expired.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Collection, Generator, Mapping
from enum import Enum, auto
from struct import Struct
from typing import Any, NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError, error_code
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.log import MetadataLog
from lakelog.network_client import InvalidResponseError, NegotiationError
from lakelog.protocol.api import Api
from lakelog.protocol.connections import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from lakelog.runtime.api import Tasks
from lakelog.wire.schema import Buffer, Message


class Principal(NamedTuple):
    """The identity of a client. ACLs and quotas refer to it as `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


BROKER = "Broker"
"""The kind of a broker of the cluster; its name is the node id."""

ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of a client that has not been authenticated."""


def broker_principal(node_id: int) -> Principal:
    """Return the principal of a broker that has proved itself."""
    return Principal(BROKER, str(node_id))


def is_broker(principal: Principal, node_id: int) -> bool:
    """Return whether the client is this broker."""
    return principal.kind == BROKER and principal.name == str(node_id)


class Authorizer(Protocol):
    """The decisions of one broker. Code that changes one calls `Admission.revoke` afterwards."""

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        """Return NONE if the principal may use the API, else the code of the refusal."""
        ...


class BrokersApart:
    """The authorizer of a broker without ACLs: it distinguishes brokers from clients.

    As in Kafka, every principal may use every API. Only the APIs between brokers, with which a
    client could change the metadata, are for brokers that have proved themselves.
    """

    def __init__(self, between_brokers: Collection[int]) -> None:
        """between_brokers: keys of these APIs."""
        self._between_brokers = between_brokers

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        """Return CLUSTER_AUTHORIZATION_FAILED for a client that uses an API between brokers."""
        if api.key in self._between_brokers and principal.kind != BROKER:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.NONE


class Quotas(Protocol):
    """The quotas of one broker's clients. Code that changes one calls `Admission.revoke`
    afterwards."""

    def charge(self, principal: Principal, client_id: str, api: Api, size_bytes: int) -> int | None:
        """Charge a request of `size_bytes` to the client's quota.

        Return the time in ms for which the client is to be throttled (KIP-219), 0 while it is
        within its quota, and None for a client without a quota.
        """
        ...


class NoQuotas:
    """The quotas of a broker on which no client has one."""

    def charge(self, principal: Principal, client_id: str, api: Api, size_bytes: int) -> int | None:
        """Return None."""
        return None


MECHANISM = "LAKELOG-BROKER"
NONCE_BYTES = 32
_FIRST = Struct(f">i{NONCE_BYTES}s")


class Process(NamedTuple):
    """One process of a broker."""

    node_id: int
    incarnation_id: bytes


class Ends(NamedTuple):
    """The processes that a connection is to connect."""

    cluster_id: str
    caller: Process
    callee: Process

    def mac(self, end: bytes, caller_nonce: bytes, callee_nonce: bytes) -> bytes:
        """Return the proof of one end."""
        key = self.caller.incarnation_id + self.callee.incarnation_id
        nodes = Struct(">ii").pack(self.caller.node_id, self.callee.node_id)
        text = end + nodes + caller_nonce + callee_nonce + self.cluster_id.encode()
        return hmac.digest(key, text, hashlib.sha256)


Proof = Generator[Message, Message, None]
"""Yields requests, is sent their responses, and ends when both ends have proved themselves."""


def prove(ends: Ends, nonce: bytes) -> Proof:
    """Return the side of the caller; `nonce` is random.

    Raises `NegotiationError` for a refusal, and for a callee that is not the expected process.
    """
    chosen = yield SaslHandshakeRequest(mechanism=MECHANISM)
    assert isinstance(chosen, SaslHandshakeResponse)
    if chosen.error_code:
        raise NegotiationError(error_code(chosen.error_code))
    first = _FIRST.pack(ends.caller.node_id, nonce)
    other = _token((yield SaslAuthenticateRequest(auth_bytes=first)))
    if len(other) != NONCE_BYTES:
        raise InvalidResponseError(f"{len(other)} random bytes, not {NONCE_BYTES}")
    own = ends.mac(b"caller", nonce, other)
    answer = _token((yield SaslAuthenticateRequest(auth_bytes=own)))
    if not hmac.compare_digest(answer, ends.mac(b"callee", nonce, other)):
        raise InvalidResponseError("the process at this address does not prove which broker it is")


def _token(response: Message) -> bytes:
    assert isinstance(response, SaslAuthenticateResponse)
    if response.error_code:
        raise NegotiationError(error_code(response.error_code))
    return bytes(response.auth_bytes)


class ProofCheck:
    """The side of the callee, on one connection."""

    __slots__ = ("_caller_nonce", "_cluster_id", "_nonce", "_own", "node_id")

    def __init__(self, cluster_id: str, own: Process, nonce: bytes) -> None:
        """nonce: random."""
        self._cluster_id = cluster_id
        self._own = own
        self._nonce = nonce
        self._caller_nonce = b""
        self.node_id = -1
        """The broker that the caller claims to be; -1 before its first token."""

    def begin(self, token: Buffer) -> bytes | None:
        """Return the answer to the first token; None if it is malformed."""
        if len(token) != _FIRST.size:
            return None
        self.node_id, self._caller_nonce = _FIRST.unpack(token)
        return self._nonce if self.node_id >= 0 else None

    def answer(self, token: Buffer, incarnation_id: bytes) -> bytes | None:
        """Return the answer to the second token; None unless it is that of this process."""
        ends = Ends(self._cluster_id, Process(self.node_id, incarnation_id), self._own)
        if not hmac.compare_digest(bytes(token), ends.mac(b"caller", *self._nonces)):
            return None
        return ends.mac(b"callee", *self._nonces)

    @property
    def _nonces(self) -> tuple[bytes, bytes]:
        return self._caller_nonce, self._nonce


class RegisteredBrokers:
    """The brokers of the image, and the live ones of the store, which it may not show yet.

    Any client can cause a read of the store by a wrong proof. So only one read is under way at a
    time, and all waiting proofs use its result.
    """

    def __init__(self, metadata: MetadataLog, tasks: Tasks) -> None:
        self._metadata = metadata
        self._tasks = tasks
        self._looking: Any = None

    async def answer(self, check: ProofCheck, token: Buffer) -> bytes | None:
        """Return the answer to a caller's proof; None unless the caller is a registered process."""
        broker = self._metadata.image.brokers.get(check.node_id)
        answer = None if broker is None else check.answer(token, broker.incarnation_id)
        if answer is not None:
            return answer
        live = (await self._live()).get(check.node_id)
        return None if live is None else check.answer(token, live)

    async def _live(self) -> Mapping[int, bytes]:
        """Return the live brokers of the store; none while it cannot be read."""
        if self._looking is None:
            self._looking = self._tasks.spawn(self._look(), name="look for brokers")
        incarnations: Mapping[int, bytes] = await asyncio.shield(self._looking)
        return incarnations

    async def _look(self) -> Mapping[int, bytes]:
        try:
            return await self._metadata.live_brokers()
        except MetadataError:
            return {}
        finally:
            self._looking = None


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
